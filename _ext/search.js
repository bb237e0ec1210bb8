// The search leads to sections. Sphinx's own knows a section by its title, but only where the query
// is at least half as long as that; here a title that has all the words of the query is found, and
// one that begins with them comes first. Sphinx puts this behind searchtools.js.
;(() => {
  const HAN = /[\u4e00-\u9fff]/;
  const SOLUTION = /^(?:solution to|解答) /i;
  const EXERCISE = /^ *[(（](.*)[)）]$/;
  const OPENING = /^(?:going deeper: |what goes wrong: |深入一步：|the |an? )+/i;
  const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const stemmer = new Stemmer();
  const stems = (text) => wordsOf(text).map((word) => stemmer.stemWord(word)).join(" ");

  // How well a title answers the query, or 0 if it lacks a word of it.
  const score = (title, query, terms) => {
    const words = wordsOf(title);
    const has = (term) => HAN.test(term)
      ? title.includes(term)
      : words.some((word) => word.startsWith(term) || stemmer.stemWord(word) === term);
    if (SOLUTION.test(title) || ![...terms].every(has)) return 0;
    const [asked, bare] = [stems(query), stems(title.replace(OPENING, ""))];
    const starts = bare.startsWith(asked) ? 200 : 0;
    const phrase = bare.includes(asked) ? 200 : 0;
    const base = EXERCISE.test(title) ? 600 : 1000;
    return base + starts + phrase + Math.min(99, Math.round((99 * query.length) / title.length));
  };

  const search = Search._performSearch;
  Search._performSearch = (query, terms, excluded, ...more) => {
    const { alltitles, docnames, filenames, titles } = Search._index;
    const sections = terms.size === 0 || excluded.size ? [] : Object.entries(alltitles).flatMap(
      ([title, places]) => {
        const points = score(title, query.trim(), terms);
        return points === 0 ? [] : places.map(([page, id]) => [
          docnames[page],
          titles[page] === title ? title : `${titles[page]} > ${title.replace(EXERCISE, "$1")}`,
          id === null || titles[page] === title ? "" : `#${id}`,
          null,
          points,
          filenames[page],
        ]);
      });
    const key = ([page, , anchor]) => page + anchor;
    const found = new Set(sections.map(key));
    const rest = search(query, terms, excluded, ...more).filter((result) => !found.has(key(result)));
    // The last of them is shown first. Equal ones come in the order of the chapters' numbers.
    const order = new Intl.Collator(undefined, { numeric: true });
    return [...rest, ...sections].sort((a, b) => a[4] - b[4] || order.compare(b[1], a[1]));
  };

  // Around the words that were asked for: sentences, without formulas, code and tooltips.
  Search.makeSearchSummary = (html, terms, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    let place = (anchor && page.getElementById(anchor.slice(1))) || page.querySelector("article");
    while (place.matches("dt")) place = place.nextElementSibling;  // the meaning of a term
    const LEFT_OUT = "h1, h2, h3, h4, script, style, noscript, pre, table, .cell, .headerlink";
    place.querySelectorAll(`${LEFT_OUT}, [role=tooltip]`).forEach((element) => element.remove());
    place.querySelectorAll(".math").forEach((formula) => formula.replaceWith("…"));
    const text = place.textContent.replace(/\s+/g, " ").trim();
    if (!text) return null;
    const lower = text.toLowerCase();
    const places = [...terms].map((term) => lower.indexOf(term)).filter((at) => at >= 0);
    const start = places.length ? text.lastIndexOf(". ", Math.min(...places)) + 1 : 0;
    const cut = text.slice(start, start + 240).trim();
    const summary = document.createElement("p");
    summary.className = "context";
    summary.textContent = start + 240 < text.length ? cut.replace(/\s+\S*$/, " …") : cut;
    return summary;
  };

  // A page that is opened from a folder may not read others.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();
