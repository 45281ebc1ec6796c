package prompt

import (
	"bytes"
	"strings"
	"testing"
)

// The model of a recording or an image is a field of a form, before the file or after
// it.
func TestForms(t *testing.T) {
	part := func(name, value string) string {
		return "--b0undary\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	file := "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n" + strings.Repeat("\x00\x01RIFF", 20_000) + "\r\n"
	const end = "--b0undary--\r\n"
	for _, c := range []struct {
		name, body, tail, model string
		stream                  bool
	}{
		{"before", part("model", "whisper") + part("stream", "True") + file + end, "", "whisper", true},
		{"after", file + part("model", "whisper-1") + end, "", "whisper-1", false},
		{"in the tail", file[:1000], file[len(file)-100:] + part("model", "whisper") + end, "whisper", false},
		{"none", file + end, "", "", false},
		{"cut", part("model", "whisper")[:60], "", "", false},
		{"odd", part("model", "a\nb") + end, "", "", false},
		{"long", part("model", strings.Repeat("x", 300)) + end, "", "", false},
	} {
		var b Body
		b.Scan([]byte(c.body), EndpointOf([]byte("/v1/audio/transcriptions")), 0)
		if c.tail != "" {
			b.ScanTail([]byte(c.tail))
		}
		if string(b.Model) != c.model || b.Stream != c.stream || b.MediaTokens == 0 || b.TextBytes != 0 {
			t.Errorf("%s: model %q, stream %v, %d tokens of media, %d bytes of text", c.name, b.Model, b.Stream, b.MediaTokens, b.TextBytes)
		}
	}
	var b Body
	body := []byte(part("model", "whisper") + file + end)
	if n := testing.AllocsPerRun(20, func() { b.Scan(body, Other, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzForm(f *testing.F) {
	f.Add([]byte("--b\r\nname=\"model\"\r\n\r\nm\r\n--b--"), []byte("name=\"model\"\r\n\r\n"))
	f.Fuzz(func(t *testing.T, body, tail []byte) {
		var b Body
		b.Scan(append([]byte("--"), body...), Other, 0)
		b.ScanTail(tail)
		if len(b.Model) > maxFormValue || bytes.ContainsAny(b.Model, "\r\n") {
			t.Fatalf("model %q", b.Model)
		}
	})
}
