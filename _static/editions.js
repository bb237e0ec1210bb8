// Whether the other edition has been built beside these pages; a build of it puts a true here.
document.documentElement.dataset.chinese = "false";
