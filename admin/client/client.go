// Package client queries a running agent at its admin address, and prints the answers for a
// terminal.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pointsman/admin"
	"pointsman/misuse"
)

// Client is the admin address of an agent: host:port, tcp://host:port,
// http://host:port or unix:///path.
type Client string

// url returns the address of path at the agent.
func (c Client) url(path string) string {
	if c.socket() != "" {
		return "http://agent" + path
	}
	host := strings.TrimPrefix(strings.TrimPrefix(string(c), "tcp://"), "http://")
	return "http://" + strings.TrimSuffix(host, "/") + path
}

// socket is the path of the agent's unix socket, "" if the address is no socket.
func (c Client) socket() string {
	path, ok := strings.CutPrefix(string(c), "unix://")
	if !ok {
		return ""
	}
	return path
}

// request returns a request for path at the agent. An address that no agent can have is
// misuse.
func (c Client) request(method, path string, body io.Reader) (*http.Request, error) {
	if strings.HasPrefix(string(c), "https://") {
		return nil, misuse.Errorf("%s: the admin address speaks http, without TLS: write http://host:port, host:port or unix:///path", c)
	}
	req, err := http.NewRequest(method, c.url(path), body)
	scheme, _, ok := strings.Cut(string(c), "://")
	if err != nil || ok && scheme != "http" && scheme != "tcp" && c.socket() == "" || !IsHost(req.URL) {
		return nil, misuse.Errorf("admin address %q: want host:port, http://host:port or unix:///path", string(c))
	}
	return req, nil
}

// IsHost reports whether a URL has a host and, if it names a port, one that there is.
func IsHost(u *url.URL) bool {
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Hostname() != "" && (u.Port() == "" || err == nil && n > 0)
}

// ParseHeader reads a header as "name: value".
func ParseHeader(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
		return "", "", misuse.Errorf("header %q: want 'name: value'", text)
	}
	return name, value, nil
}

// headerName matches the names that HTTP allows for headers.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

// Status returns the pools and replicas as JSON.
func (c Client) Status() ([]byte, error) { return c.get("/status", isStatus) }

// Signals returns what the engines report as JSON.
func (c Client) Signals() ([]byte, error) { return c.get("/signals", isSignals) }

// Usage returns what was used since the agent's start, by key and model, as CSV.
func (c Client) Usage() ([]byte, error) { return c.get("/usage", isUsage) }

func (c Client) get(path string, isOurs func([]byte) bool) ([]byte, error) {
	req, err := c.request(http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return c.do(req, isOurs)
}

// Explain returns as JSON where a request with that body would go, and why. path is that of
// the API, pool the one that the proxy chooses, "" for that of the model; headers are lines
// of the form "name: value".
func (c Client) Explain(path, pool string, headers []string, body []byte) ([]byte, error) {
	at := "/debug/explain?path=" + url.QueryEscape(path)
	if pool != "" {
		at += "&pool=" + url.QueryEscape(pool)
	}
	req, err := c.request(http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, err := ParseHeader(h)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Explain-"+name, value)
	}
	return c.do(req, isExplanation)
}

// Record makes the agent record for at most that long, and returns the stream.
func (c Client) Record(most time.Duration) (io.ReadCloser, error) {
	req, err := c.request(http.MethodPost, "/record?for="+url.QueryEscape(most.String()), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.send(req, 0)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refusal(resp)
	}
	if resp.Header.Get("Content-Type") != admin.RecordingType {
		resp.Body.Close()
		return nil, c.foreign(resp)
	}
	return resp.Body, nil
}

// send sends a request; 0 = the answer may take any time.
func (c Client) send(req *http.Request, timeout time.Duration) (*http.Response, error) {
	client := http.Client{Timeout: timeout}
	if path := c.socket(); path != "" {
		client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
	}
	resp, err := client.Do(req)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("run this as root, or as a member of the socket's group (listen.socket_group): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("is the agent running, and is this its admin address? %w", err)
	}
	return resp, nil
}

// do sends a request and returns the body of its answer, which isOurs knows as an agent's.
func (c Client) do(req *http.Request, isOurs func([]byte) bool) ([]byte, error) {
	resp, err := c.send(req, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != "application/json" {
		return nil, c.refusal(resp)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && !isOurs(b) {
		err = c.foreign(resp)
	}
	return b, err
}

// Watch makes the agent follow the next request of a session, and Watched returns its
// outcome as JSON.
func (c Client) Watch(session string) ([]byte, error) {
	req, err := c.request(http.MethodPost, "/debug/watch?session="+url.QueryEscape(session), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, isWatch)
}

// Watched is the other half of Watch.
func (c Client) Watched(session string) ([]byte, error) {
	return c.get("/debug/watch?session="+url.QueryEscape(session), isWatch)
}
