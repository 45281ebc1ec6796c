package check

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"pointsman/admin/client"
)

// LiveOptions describe the request that RunLive sends.
type LiveOptions struct {
	URL      string   // of the API behind the proxy, such as https://host/v1/chat/completions
	Admin    string   // address of the running agent
	Model    string   // empty = the first one that the agent or an engine serves
	Headers  []string // "name: value", such as a key
	JSON     bool
	Client   *http.Client  // nil = the usual one, which does not follow redirects
	Patience time.Duration // how long to wait for the feed's lines; 0 = 3 s
}

// Live is the course of a request, step by step.
type Live struct {
	URL       string  `json:"url"`
	Status    int     `json:"status"`
	Error     string  `json:"error,omitempty"`
	Asked     bool    `json:"asked"`
	Decided   string  `json:"decided,omitempty"` // the replica
	Why       string  `json:"why,omitempty"`
	Pool      string  `json:"pool,omitempty"`
	ServedBy  string  `json:"served_by,omitempty"`
	FirstByte bool    `json:"first_byte_heard"`
	TTFT      float64 `json:"ttft_s,omitempty"`
	End       string  `json:"end_heard,omitempty"`
	OK        bool    `json:"ok"`
}

// mostLive bounds the answer that is read, in bytes.
const mostLive = 1 << 20

// RunLive sends one small request through the proxy and asks the agent what it learned
// about it. The error is ErrLive if a step is missing.
func RunLive(w io.Writer, o LiveOptions) error {
	l, err := live(o)
	if err != nil {
		return err
	}
	if o.JSON {
		b, err := json.MarshalIndent(l, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n", b)
	} else {
		l.print(w)
	}
	switch {
	case l.OK:
		return nil
	case l.Status != http.StatusOK && l.steps():
		return fmt.Errorf("the agent was asked, decided, and got the report, but the answer is %d: the replica refuses this request, which is one of chat completions: see its answer above, --model and --header", l.Status)
	}
	return ErrLive
}

// steps reports whether none is missing, whatever was answered.
func (l *Live) steps() bool {
	return l.Decided != "" && l.ServedBy == l.Decided && l.End == "served"
}

// ErrLive is the error of a live check with a step that is missing.
var ErrLive = errors.New("not all steps were seen; see docs/troubleshooting.md")

func live(o LiveOptions) (*Live, error) {
	for _, h := range o.Headers {
		if _, _, err := client.ParseHeader(h); err != nil {
			return nil, err
		}
	}
	agent := client.Client(o.Admin)
	model, err := o.model(agent)
	if err != nil {
		return nil, err
	}
	session := "pointsman-check-" + rand.Text()
	answer, err := agent.Watch(session)
	if err != nil {
		return nil, err
	}
	var armed struct {
		Headers []string `json:"session_headers"`
	}
	if err := json.Unmarshal(answer, &armed); err != nil {
		return nil, fmt.Errorf("the agent does not know this check; is it an older one? %w", err)
	}
	header := ""
	for _, h := range armed.Headers {
		if header == "" && !slices.Contains([]string{"authorization", "cookie", "x-api-key"}, h) {
			header = h
		}
	}
	if header == "" {
		return nil, errors.New("session.headers of the agent has no header that a request could be marked with; add x-session-id")
	}
	if o.Patience == 0 {
		o.Patience = 3 * time.Second
	}
	l := &Live{URL: o.URL}
	// Workers from before a reload still accept for a moment, and nginx does not ask for
	// two seconds after the agent failed: a first request may bypass the agent, so there is
	// a second one.
	for range 2 {
		if err := l.send(&o, model, header, session); err != nil {
			return nil, err
		}
		for end := time.Now().Add(o.Patience); ; time.Sleep(50 * time.Millisecond) {
			if err := l.learn(agent, session); err != nil {
				return nil, err
			}
			if l.End != "" || time.Now().After(end) || l.Status != http.StatusOK && l.Decided == "" {
				break
			}
		}
		if l.Asked || l.Status != http.StatusOK {
			break
		}
	}
	l.OK = l.Status == http.StatusOK && l.Error == "" && l.steps()
	return l, nil
}

// model is the model to ask for: the one that is named, the first that a pool lists, or the
// first that an engine lists at /v1/models through the proxy.
func (o *LiveOptions) model(agent client.Client) (string, error) {
	if o.Model != "" {
		return o.Model, nil
	}
	b, err := agent.Status()
	if err != nil {
		return "", err
	}
	var st struct {
		Pools []struct {
			Models []string `json:"models"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return "", err
	}
	for _, p := range st.Pools {
		if len(p.Models) > 0 {
			return p.Models[0], nil
		}
	}
	if m := o.served(); m != "" {
		return m, nil
	}
	return "default", nil // some engines take any name
}

// served is the first model that an engine behind the proxy lists, empty for none.
func (o *LiveOptions) served() string {
	base, _, ok := strings.Cut(o.URL, "/v1/")
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := o.do(ctx, http.MethodGet, base+"/v1/models", nil, nil)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, mostLive)).Decode(&list) != nil || len(list.Data) == 0 {
		return ""
	}
	return list.Data[0].ID
}

// do sends a request with the headers of the options and some more.
func (o *LiveOptions) do(ctx context.Context, method, url string, body io.Reader, more map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	req.Close = true // the next one may go to another worker
	for name, value := range more {
		req.Header.Set(name, value)
	}
	for _, h := range o.Headers {
		name, value, err := client.ParseHeader(h)
		if err != nil {
			return nil, err
		}
		if strings.EqualFold(name, "host") {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	c := o.Client
	if c == nil {
		c = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c.Do(req)
}

// send sends the request and reads its answer.
func (l *Live) send(o *LiveOptions, model, header, session string) error {
	body, err := json.Marshal(map[string]any{
		"model": model, "max_tokens": 4, "stream": true, "messages": []map[string]string{{"role": "user", "content": "Say OK."}}, "prompt": "Say OK.",
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := o.do(ctx, http.MethodPost, o.URL, bytes.NewReader(body), map[string]string{"Content-Type": "application/json", header: session})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	l.Status = resp.StatusCode
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostLive))
	switch {
	case err != nil:
		l.Error = err.Error()
	case resp.StatusCode != http.StatusOK:
		l.Error = fmt.Sprintf("%.300s", bytes.TrimSpace(text))
		if resp.StatusCode == http.StatusNotFound && o.Model == "" {
			l.Error += fmt.Sprintf("\n%-17s it was asked for the model %q: name another with --model", "", model)
		}
	}
	return nil
}

// learn asks the agent.
func (l *Live) learn(agent client.Client, session string) error {
	b, err := agent.Watched(session)
	if err != nil {
		return err
	}
	var answer struct {
		Request *struct {
			Pool      string  `json:"pool"`
			Server    string  `json:"server"`
			Why       string  `json:"why"`
			ServedBy  string  `json:"served_by"`
			FirstByte bool    `json:"first_byte"`
			TTFT      float64 `json:"ttft_s"`
			Ended     bool    `json:"ended"`
			End       string  `json:"end"`
		} `json:"request"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return err
	}
	if r := answer.Request; r != nil {
		l.Asked, l.Pool, l.Decided, l.Why, l.ServedBy, l.FirstByte, l.TTFT = true, r.Pool, r.Server, r.Why, r.ServedBy, r.FirstByte, r.TTFT
		if r.Ended {
			l.End = r.End
		}
	}
	return nil
}

// print writes the steps, and for the first one that is missing a possible cause.
func (l *Live) print(w io.Writer) {
	step := func(name string, ok bool, text, remedy string) bool {
		if !ok {
			text = "NO: " + remedy
		}
		fmt.Fprintf(w, "%-17s %s\n", name, text)
		return ok
	}
	fmt.Fprintf(w, "%-17s %d from %s\n", "answer", l.Status, l.URL)
	if l.Error != "" {
		fmt.Fprintf(w, "%-17s %s\n", "", l.Error)
	}
	if strings.Contains(l.Error, "model_not_found") {
		step("decided", false, "", "no pool serves the model: name another with --model")
		return
	}
	if !step("asked", l.Asked, "yes, for pool "+l.Pool, "the agent got no question: `pointsman check --haproxy-config F` or --nginx-config F names the line, and is the proxy reloaded?") {
		return
	}
	if !step("decided", l.Decided != "", l.Decided+" ("+l.Why+")", "no replica was chosen: "+l.Why) {
		return
	}
	if l.End == "" {
		step("reported", false, "", "the proxy served it, but no log line came: is the feed's log in this frontend or server?")
		return
	}
	step("served by", l.ServedBy == l.Decided, l.ServedBy, fmt.Sprintf("%q, not the replica that was decided", l.ServedBy))
	first := "not reported: nginx logs none, and in HAProxy http-response wait-for-body of the backend sets it"
	if l.FirstByte {
		first = fmt.Sprintf("after %.0f ms", 1000*l.TTFT)
	}
	step("first byte", true, first, "")
	step("end", l.End == "served", l.End, l.End)
	if l.OK {
		fmt.Fprintln(w, "asked, decided, reported")
	}
}
