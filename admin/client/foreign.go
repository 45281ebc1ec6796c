package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/bytedance/sonic"

	"pointsman/engine"
)

// foreign is the error for an answer that no agent gives, as an engine or a proxy at the
// address may.
func (c Client) foreign(resp *http.Response) error {
	return fmt.Errorf("is this the agent's admin address? %s answers %s with %s, but not as an agent does", string(c), resp.Request.URL.Path, resp.Status)
}

// refusal returns why the agent refuses, which it says in plain text, and closes the answer.
func (c Client) refusal(resp *http.Response) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain"):
		return errors.New(strings.TrimSpace(string(b)))
	}
	return c.foreign(resp)
}

// maxRefusal bounds the text of a refusal, in bytes.
const maxRefusal = 64 << 10

// These functions report whether an answer is an agent's. Agents of other versions pass too.

func isStatus(answer []byte) bool {
	var s struct{ Version string }
	return sonic.Unmarshal(answer, &s) == nil && s.Version != ""
}

func isSignals(answer []byte) bool {
	var list []engine.Status
	return sonic.Unmarshal(answer, &list) == nil
}

func isUsage(answer []byte) bool { return bytes.HasPrefix(answer, []byte("key,tenant,")) }

func isExplanation(answer []byte) bool {
	var x struct {
		Status    int    // of a refusal
		Pool, Why string // of a decision
	}
	return sonic.Unmarshal(answer, &x) == nil && (x.Status != 0 || x.Pool != "" || x.Why != "")
}

func isWatch(answer []byte) bool {
	var x map[string]any
	err := sonic.Unmarshal(answer, &x)
	_, ok := x["session_headers"]
	return err == nil && ok
}
