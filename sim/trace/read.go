package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

const maxLine = 64 << 20 // bytes

// Example shows the formats that Read accepts, for errors.
const Example = `simulate reads JSON objects, one in each line:
  {"timestamp": 1764000000123, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
  {"timestamp": "2026-11-22T05:00:00Z", "session": "u17", "body": {"messages": [{"role": "user", "content": "Hello"}]}, "output_tokens": 212}
Besides, what pointsman record writes, LiteLLM's logs (StandardLoggingPayload or SpendLogs),
and vLLM's log with --enable-log-requests; all of them also compressed by gzip.`

// errForm is a line or a file in no known form.
type errForm struct{ text string }

func (e errForm) Error() string { return e.text + "\n" + Example }

// Read reads a trace in one of the forms of Example. Errors name the line.
func Read(r io.Reader, o Options) (*Trace, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	end := &cutEnd{Reader: in}
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		end.Reader = z
	}
	p := parser{options: o}
	text := bufio.NewReaderSize(end, 64<<10)
	var err error
	if start, _ := text.Peek(1); string(start) == "[" {
		err = p.array(text)
	} else {
		err = p.lines(text, end)
	}
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if end.isCut {
		p.note("The file ends early, as after a crash: what is there is read.")
	}
	t, err := p.trace()
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

// ReadFile is Read on the file at path.
func ReadFile(path string, o Options) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, o)
}

// cutEnd treats the end of a truncated compressed file as the end of the file.
type cutEnd struct {
	io.Reader
	isCut bool
}

func (c *cutEnd) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		c.isCut, err = true, io.EOF
	}
	return n, err
}

// lines reads one object, or one line of a log, after the other.
func (p *parser) lines(r io.Reader, end *cutEnd) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		data := bytes.TrimSpace(lines.Bytes())
		if len(data) == 0 {
			continue
		}
		if p.form == nil {
			p.form = formOf(data)
		}
		if err := p.form(p, data); err != nil {
			if end.isCut && !lines.Scan() {
				break // a part of a line
			}
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line of more than %d MiB", maxLine>>20)
	}
	return lines.Err()
}

// array reads the elements of a JSON array, as APIs return them.
func (p *parser) array(r io.Reader) error {
	p.form = (*parser).object
	elements := json.NewDecoder(r)
	if _, err := elements.Token(); err != nil {
		return errForm{"not a JSON array"}
	}
	for n := 1; elements.More(); n++ {
		var data json.RawMessage
		if err := elements.Decode(&data); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
		if err := p.object(data); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
	}
	return nil
}

// form reads one line.
type form func(p *parser, data []byte) error

// formOf is the form of the file that begins with that line.
func formOf(data []byte) form {
	if data[0] == '{' {
		return (*parser).object
	}
	return (*parser).logLine
}

// note adds an assumption of the reader to the notes, unless it is there.
func (p *parser) note(text string) {
	for _, n := range p.notes {
		if n == text {
			return
		}
	}
	p.notes = append(p.notes, text)
}
