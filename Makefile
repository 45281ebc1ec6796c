# make demo    everything at once: a real HAProxy, fake replicas, the agent;
#              PROXY=nginx for nginx in its place
# make test    all tests, on real binaries
# make build   the binary, ./pointsman
# make install the binary, the systemd units and, where there is none, a configuration
# make bench   the Go benchmarks, and the overhead against plain HAProxy
# make soak    the long runs that make test leaves out

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PREFIX  ?= /usr/local
FUZZTIME ?= 30s
PROXY   ?= haproxy

export CGO_ENABLED = 0

.PHONY: build demo test bench soak fuzz install clean

build:
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o pointsman ./cmd/pointsman

demo: build
	@sh test/setup.sh $(PROXY)
	./pointsman demo --proxy $(PROXY)

test:
	@sh test/setup.sh
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test $$($(GO) list ./... | grep -v /test/)
	$(GO) test -p 1 -count 1 -timeout 15m ./test/...

bench:
	$(GO) test -run '^$$' -bench . -count 10 ./prompt ./session ./decider ./spoa ./haproxy ./nginx
	$(GO) run ./bench/overhead
	$(GO) run ./bench/overhead -nginx nginx

soak:
	@sh test/setup.sh
	POINTSMAN_SOAK=1 $(GO) test -p 1 -count 1 -timeout 2h ./...

# Every fuzz target for FUZZTIME each.
fuzz:
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; \
	done

install: build
	install -D -m 755 pointsman $(DESTDIR)$(PREFIX)/bin/pointsman
	test -e $(DESTDIR)/etc/pointsman/pointsman.yaml || install -D -m 644 packaging/pointsman.yaml $(DESTDIR)/etc/pointsman/pointsman.yaml
	test -e $(DESTDIR)/etc/default/pointsman || install -D -m 640 packaging/pointsman.default $(DESTDIR)/etc/default/pointsman
	install -D -m 644 templates/systemd/pointsman.service $(DESTDIR)/etc/systemd/system/pointsman.service
	install -D -m 644 templates/systemd/pointsman-spoe.socket $(DESTDIR)/etc/systemd/system/pointsman-spoe.socket
	install -D -m 644 templates/systemd/pointsman-nginx.socket $(DESTDIR)/etc/systemd/system/pointsman-nginx.socket
	install -D -m 644 templates/systemd/pointsman.sysusers $(DESTDIR)/usr/lib/sysusers.d/pointsman.conf

clean:
	rm -rf pointsman dist
