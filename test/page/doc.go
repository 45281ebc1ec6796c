// Package page holds the tests of the status page in a real Chromium. They are run by
// `make page`, which installs it; those of admin/page need no browser.
package page
