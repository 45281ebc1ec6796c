# Everything that one does with this repository; `make help` lists it.

GO       ?= go
PREFIX   ?= /usr/local
PROXY    ?= haproxy
FUZZTIME ?= 30s
MAINTAINER ?=
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

# Packages tested without the whole service: all but those below test/.
UNIT = $$($(GO) list ./... | grep -v '^pointsman/test/')
# Those that start goroutines or are called from several: they import sync, or have
# a go statement.
RACED = $$(grep -rlE --include='*.go' '^[[:space:]]+go [a-z]|"sync(/atomic)?"' . | xargs -n 1 dirname | sort -u | grep -vE '^\./(test|bench)/')
# Test helpers and benchmark programs need no coverage.
COVERED = $$($(GO) list ./... | grep -vE '^pointsman/(test|bench)/')
COVERAGE = 85
# The end-to-end round under the race detector: load, reload and held requests, on
# each release of each proxy.
RACE_ROUND = ^Test(Mixed|Reload|UrgentOvertakes)$$

# Each holds many requests at a time and has a process of its own.
ALONE = TestHoldingIsCheap TestLeavingWhileHeld

export CGO_ENABLED = 0


.NOTPARALLEL:
.PHONY: help build install uninstall packages image release package-test debian chart large-buffers docs demo test compiler setup check unit race e2e engines page lint cover fuzz bench bench-peers soak clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

build: ## the binary, ./pointsman
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o pointsman ./cmd/pointsman

install: build ## the binary, man pages, completions, units and, where there is none, a configuration
	install -D -m 755 pointsman $(DESTDIR)$(PREFIX)/bin/pointsman
	rm -rf dist/man && ./pointsman man dist/man
	for s in 1 5; do install -d $(DESTDIR)$(PREFIX)/share/man/man$$s && install -m 644 dist/man/*.$$s $(DESTDIR)$(PREFIX)/share/man/man$$s; done
	for s in bash zsh fish; do ./pointsman completion $$s >dist/man/$$s; done
	install -D -m 644 dist/man/bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pointsman
	install -D -m 644 dist/man/zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_pointsman
	install -D -m 644 dist/man/fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/pointsman.fish
	test -e $(DESTDIR)/etc/pointsman/pointsman.yaml || install -D -m 644 packaging/pointsman.yaml $(DESTDIR)/etc/pointsman/pointsman.yaml
	test -e $(DESTDIR)/etc/default/pointsman || install -D -m 640 packaging/pointsman.default $(DESTDIR)/etc/default/pointsman
	install -D -m 644 templates/systemd/pointsman.service $(DESTDIR)/etc/systemd/system/pointsman.service
	install -D -m 644 templates/systemd/pointsman-spoe.socket $(DESTDIR)/etc/systemd/system/pointsman-spoe.socket
	install -D -m 644 templates/systemd/pointsman-nginx.socket $(DESTDIR)/etc/systemd/system/pointsman-nginx.socket
	install -D -m 644 templates/systemd/pointsman.sysusers $(DESTDIR)/usr/lib/sysusers.d/pointsman.conf
	test -n "$(DESTDIR)" || ! getent group haproxy >/dev/null || install -D -m 644 templates/systemd/pointsman-haproxy.sysusers /usr/lib/sysusers.d/pointsman-haproxy.conf

demo: build ## a real HAProxy (PROXY=nginx for nginx), fake replicas, the agent
	@sh test/setup.sh $(PROXY)
	./pointsman demo --proxy $(PROXY)

test: compiler setup check unit race e2e ## all that CI runs: format, vet, unit, race and end-to-end tests

setup: # the proxies that the tests run
	@sh test/setup.sh

check: # format and vet
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	$(GO) vet ./...

unit: ## unit tests, in random order
	$(GO) test -shuffle=on $(UNIT)

compiler: # for the race detector
	@command -v $$($(GO) env CC) >/dev/null || { echo "the race detector needs a C compiler: install gcc"; exit 1; }

race: compiler ## the race detector: packages with goroutines, and one round on each proxy
	CGO_ENABLED=1 $(GO) test -race -short -shuffle=on -timeout 15m $(RACED)
	CGO_ENABLED=1 POINTSMAN_RACE=1 $(GO) test -count 1 -timeout 15m -run '$(RACE_ROUND)' ./test/e2e

e2e: ## end-to-end tests on real proxies
	$(GO) test -p 1 -parallel 6 -count 1 -timeout 25m -skip '^($(shell echo $(ALONE) | tr ' ' '|'))$$' ./test/...
	for t in $(ALONE); do $(GO) test -count 1 -timeout 5m -run "^$$t\$$" ./test/e2e || exit 1; done

engines: ## two real vLLM on CPUs and two real llama.cpp behind both proxies; 6 GB in the cache folder
	@sh test/setup.sh engines
	POINTSMAN_ENGINES=1 CI=true $(GO) test -count 1 -v -timeout 60m ./test/engines

uninstall: ## remove what install has put there, but for /etc/pointsman and /etc/default
	rm -f $(DESTDIR)$(PREFIX)/bin/pointsman $(DESTDIR)/usr/lib/sysusers.d/pointsman.conf $(DESTDIR)/usr/lib/sysusers.d/pointsman-haproxy.conf
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/pointsman.1 $(DESTDIR)$(PREFIX)/share/man/man1/pointsman-*.1 $(DESTDIR)$(PREFIX)/share/man/man5/pointsman.yaml.5
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pointsman $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_pointsman $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/pointsman.fish
	rm -f $(DESTDIR)/etc/systemd/system/pointsman.service $(DESTDIR)/etc/systemd/system/pointsman-spoe.socket $(DESTDIR)/etc/systemd/system/pointsman-nginx.socket

packages: ## deb, rpm and tar for amd64 and arm64, in dist
	cd packaging/tools && $(GO) run . -version '$(VERSION)' -maintainer '$(MAINTAINER)' packages

image: ## an OCI image for amd64 and arm64, in dist, without a daemon
	cd packaging/tools && $(GO) run . -version '$(VERSION)' -maintainer '$(MAINTAINER)' image

release: ## packages, image, what is in them, and checksums
	rm -rf dist
	cd packaging/tools && $(GO) run . -version '$(VERSION)' -maintainer '$(MAINTAINER)' release

package-test: release ## install, upgrade, remove and purge the packages; run the image; build all again
	POINTSMAN_PACKAGES=$(CURDIR)/dist $(GO) test -count 1 -v -timeout 15m -run Package ./packaging

debian: ## packages, image, compose file and Ansible role on Debian 12 and 13 under a real systemd, as root
	@sh test/setup.sh debian
	rm -rf dist/debian
	cd packaging/tools && $(GO) run . -version '$(VERSION)' -arch "$$($(GO) env GOARCH)" -dist dist/debian packages image
	POINTSMAN_PACKAGES=$(CURDIR)/dist/debian $(GO) test -count 1 -v -timeout 40m ./test/debian

chart: ## the Helm chart, by helm, which has to be in PATH
	POINTSMAN_HELM=1 $(GO) test -count 1 -run '^TestChart$$' ./packaging

large-buffers: ## large buffers, on HAProxy 3.4 or later, which has to be in PATH
	POINTSMAN_LARGE_BUFFERS=1 $(GO) test -count 1 -run '^TestLargeBuffers$$' ./test/e2e

docs: ## the documentation site in dist/docs, its links checked
	cd packaging/site && $(GO) vet . && $(GO) test -count 1 . && $(GO) run -trimpath . -version '$(VERSION)'

page: ## status page and documentation site in a real Chromium, with axe-core; SHOTS=DIR for pictures
	@sh test/setup.sh page
	POINTSMAN_PAGE=1 POINTSMAN_SHOTS=$(SHOTS) $(GO) test -count 1 -v ./test/page

lint: ## golangci-lint
	$(GO) run $(GOLANGCI_LINT) run ./...

cover: setup ## coverage of unit and end-to-end tests by package, at least 85 %
	rm -rf coverage && mkdir -p coverage/unit coverage/e2e
	$(GO) test -count 1 -covermode atomic -coverpkg "$$(echo $(COVERED) | tr ' ' ,)" $(UNIT) -args -test.gocoverdir=$(CURDIR)/coverage/unit >coverage/unit.log || { cat coverage/unit.log; exit 1; }
	POINTSMAN_COVERDIR=$(CURDIR)/coverage/e2e $(GO) test -p 1 -parallel 6 -count 1 -timeout 20m ./test/e2e
	@$(GO) tool covdata percent -i coverage/unit,coverage/e2e -pkg "$$(echo $(COVERED) | tr ' ' ,)" | \
	  awk '{ sub("%", "", $$3); printf "%-28s %5.1f %%\n", $$1, $$3; if ($$3 + 0 < $(COVERAGE)) low = low " " $$1 } \
	  END { if (low != "") { print "below $(COVERAGE) %:" low; exit 1 } }'

fuzz: ## each fuzz target for FUZZTIME, 30s by default
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; \
	done

bench: ## Go benchmarks, and the overhead against a plain proxy
	$(GO) test -run '^$$' -bench . -count 10 ./prompt ./session ./decider/... ./spoa ./haproxy ./nginx
	$(GO) run ./bench/overhead
	$(GO) run ./bench/overhead -nginx nginx

bench-peers: setup ## pointsman beside plain proxies and other routers, in bench/peers.md; 12 minutes, PEERS='-rounds 1' for less
	@sh test/setup.sh peers
	$(GO) run ./bench/peers -out bench/peers.md $(PEERS)

soak: setup ## the long runs that `make test` leaves out
	POINTSMAN_SOAK=1 $(GO) test -p 1 -count 1 -timeout 2h ./...

clean: ## remove what the targets above have built
	rm -rf pointsman dist coverage
