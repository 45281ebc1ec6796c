// Package debian installs the packages on a fresh Debian under a real systemd, and
// follows the pages of the documentation word by word. `make debian` runs it.
package debian
