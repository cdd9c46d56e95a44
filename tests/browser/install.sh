#!/bin/sh
# A Chromium for tests/browser, where it can be had: as root, with apt-get. Never fails: without one
# those tests skip.
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing chromium for the tests of HTML pages"
    if apt-get update -qq >/dev/null 2>&1 && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; then
        exit 0
    fi
fi
echo "no chromium and no way to install one here: the tests of HTML pages will be skipped"
exit 0
