package fakevllm

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/bytedance/sonic"
)

// PrefillHeader names the header of a request in which a sidecar finds the replica that
// computes the prompt.
const PrefillHeader = "X-Prefiller-Host-Port"

// PrefilledBy is the header of an answer with the name of that replica.
const PrefilledBy = "X-Prefilled-By"

// lengths are the fields that limit an answer, by the end of the path.
var lengths = map[string][]string{
	"/chat/completions": {"max_tokens", "max_completion_tokens"},
	"/completions":      {"max_tokens"},
	"/responses":        {"max_output_tokens"},
	"/messages":         {"max_tokens"},
}

// lengthFields are the fields of a path, nil if nothing is generated.
func lengthFields(path string) []string {
	for _, end := range []string{"/chat/completions", "/completions", "/responses", "/messages"} {
		if strings.HasSuffix(path, end) {
			return lengths[end]
		}
	}
	return nil
}

// prefill does what llm-d's sidecar does before its engine gets the request: it sends the
// prompt to the replica that the header names, and asks for an answer of one token. It
// reports false when it has answered because that failed.
func prefill(s *Server, x *exchange) bool {
	at := x.r.Header.Get(PrefillHeader)
	fields := lengthFields(x.r.URL.Path)
	if !s.o.Sidecar || at == "" || fields == nil {
		return true
	}
	at, _, _ = strings.Cut(at, ",")
	var body map[string]any
	if err := sonic.Unmarshal(x.body, &body); err != nil {
		x.fail(badRequest("the body is no JSON object: %v", err))
		return false
	}
	delete(body, "stream_options")
	body["stream"] = false
	for _, f := range fields {
		body[f] = 1
	}
	leg, err := sonic.Marshal(body)
	if err != nil {
		panic(err) // it was unmarshalled
	}
	req, err := http.NewRequestWithContext(x.r.Context(), http.MethodPost, "http://"+strings.TrimSpace(at)+x.r.URL.Path, bytes.NewReader(leg))
	if err != nil {
		x.fail(badRequest("%s: %v", PrefillHeader, err))
		return false
	}
	req.Header = x.r.Header.Clone()
	req.Header.Del(PrefillHeader)
	req.Header.Del("Content-Length")
	resp, err := s.legs.Do(req)
	if err != nil {
		x.fail(&apiError{status: http.StatusBadGateway, kind: "Bad Gateway", message: "the prefill replica does not answer"})
		return false
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil || resp.StatusCode >= 300 {
		status := resp.StatusCode
		if err != nil {
			status = http.StatusBadGateway
		}
		x.raw(status, "application/json", answer)
		return false
	}
	x.received = true
	x.w.Header().Set(PrefilledBy, resp.Header.Get("X-Engine"))
	return true
}
