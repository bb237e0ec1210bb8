#!/bin/sh
# Say in an issue that a job of the calendar has failed, and say it in one place.
#
#   .github/open_issue.sh TITLE REPORT.md
#
# Opens an issue with the report, or comments on the one of this title that is still open. Needs the
# gh command, GH_TOKEN with leave to write issues, and GH_REPO.
set -eu

title=$1
report=$2

TITLE=$title
export TITLE
number=$(gh issue list --state open --limit 500 --json number,title \
    --jq 'map(select(.title == env.TITLE)) | .[0].number // empty')
if [ -n "$number" ]; then
    gh issue comment "$number" --body-file "$report"
else
    gh issue create --title "$title" --body-file "$report"
fi
