package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

// row names a row of the files: a policy in a setup with a seed.
type row struct {
	setup
	seed   int
	policy string
}

// store holds the figures of the files, and appends new ones to one of them.
type store struct {
	mu   sync.Mutex
	rows map[row]*figures
	file *os.File // nil for none
}

var header = []string{"workload", "replicas", "cache", "load", "seeds", "policy", "ttft_p90", "ttft_p99", "tpot_p90", "e2e_p90", "goodput", "hit_rate"}

// open reads the files of the options, and opens the one that gets new rows.
func (o *options) open(cells []*cell) (*store, error) {
	s := &store{rows: map[row]*figures{}}
	for _, path := range strings.FieldsFunc(o.from, func(r rune) bool { return r == ',' }) {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if _, err := s.read(path, b, cells); err != nil {
			return nil, err
		}
	}
	if o.csv == "" {
		return s, nil
	}
	b, err := os.ReadFile(o.csv)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := 0
	if len(b) > 0 {
		if whole, err = s.read(o.csv, b, cells); err != nil {
			return nil, err
		}
	}
	if !o.replay {
		return s, nil
	}
	if s.file, err = os.OpenFile(o.csv, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	if err = s.file.Truncate(int64(whole)); err == nil && whole == 0 {
		err = s.write(header)
	}
	return s, err
}

func (s *store) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// read adds the rows of a file, and returns the length of its whole lines: a run
// that was stopped may have left a part of one. It keeps rows of cells that are not
// selected, but refuses a file without a row of a selected one.
func (s *store) read(path string, b []byte, cells []*cell) (whole int, err error) {
	whole = bytes.LastIndexByte(b, '\n') + 1
	r := csv.NewReader(bytes.NewReader(b[:whole]))
	r.FieldsPerRecord = len(header)
	selected := map[setup]bool{}
	for _, c := range cells {
		selected[c.setup] = true
	}
	rows, fits := 0, false
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		line, _ := r.FieldPos(0)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		if rows++; rows == 1 {
			if strings.Join(fields, ",") != strings.Join(header, ",") {
				return 0, fmt.Errorf("%s: not a file of this command: its first line is not %s", path, strings.Join(header, ","))
			}
			continue
		}
		at, f, err := parseRow(fields)
		if err != nil {
			return 0, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		if old := s.rows[at]; old != nil && *old != *f {
			return 0, fmt.Errorf("%s:%d: other figures of %s in %s, %d × %d, load %g, seed %d were read before", path, line, at.policy, at.workload, at.replicas, at.cache, at.load, at.seed)
		}
		s.rows[at] = f
		fits = fits || selected[at.setup]
	}
	if rows > 1 && !fits {
		return 0, fmt.Errorf("%s: has none of the selected cells", path)
	}
	return whole, nil
}

// parseRow reads a row of a file.
func parseRow(fields []string) (row, *figures, error) {
	of, err := parseSeeds(fields[4])
	if err == nil && of.from != of.to {
		err = fmt.Errorf("means over the seeds %s, want a row for each seed", of)
	}
	if err != nil {
		return row{}, nil, err
	}
	c, err := newCell(fields[0], fields[1], fields[2], fields[3], of)
	if err != nil {
		return row{}, nil, err
	}
	f := &figures{policy: fields[5]}
	for i, x := range []*float64{&f.ttft90, &f.ttft99, &f.tpot90, &f.e2e90, &f.good, &f.hit} {
		if *x, err = strconv.ParseFloat(fields[6+i], 64); err != nil || !(*x >= 0) {
			return row{}, nil, fmt.Errorf("%s %q, want a number", header[6+i], fields[6+i])
		}
	}
	return row{c.setup, of.from, f.policy}, f, nil
}

// get returns the figures of a row, nil if they are not known.
func (s *store) get(at row) *figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[at]
}

// add adds a row and appends it to the file.
func (s *store) add(at row, f figures) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[at] = &f
	return s.write([]string{
		at.workload, strconv.Itoa(at.replicas), strconv.Itoa(at.cache), fmt.Sprint(at.load), strconv.Itoa(at.seed), at.policy,
		number(f.ttft90), number(f.ttft99), number(f.tpot90), number(f.e2e90), number(f.good), number(f.hit),
	})
}

// write appends one line to the file, in one write.
func (s *store) write(fields []string) error {
	if s.file == nil {
		return nil
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.Write(fields); err != nil {
		return err
	}
	w.Flush()
	_, err := s.file.Write(b.Bytes())
	return err
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', 5, 64) }
