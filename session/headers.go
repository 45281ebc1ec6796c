// Package session finds the session a request belongs to and maps sessions
// to replicas: which header carries the id, and rendezvous hashing with
// fallbacks over the replicas of a pool.
package session

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// Headers is an ordered list of header names that may carry a session id; the
// first one present wins. Names are compared without regard to case, and '-'
// equals '_' in any mixture, since proxies and frameworks rewrite both.
// Safe for concurrent use.
type Headers struct{ names [][]byte }

// NewHeaders makes a Headers from the configured names, in order of preference.
func NewHeaders(names []string) Headers {
	var h Headers
	for _, n := range names {
		folded := make([]byte, len(n))
		for i := range len(n) {
			folded[i] = fold[n[i]]
		}
		h.names = append(h.names, folded)
	}
	return h
}

// Names are the names as they are compared.
func (h Headers) Names() (names []string) {
	for _, n := range h.names {
		names = append(names, string(n))
	}
	return names
}

// Find looks for the session id in a raw header block: lines of "Name: value"
// that end in LF or CRLF. ok distinguishes an empty value from an absent header. The
// value is a slice of block. Find does not allocate.
func (h Headers) Find(block []byte) (value []byte, ok bool) {
	best := len(h.names)
	for len(block) > 0 && best > 0 {
		var line []byte
		line, block, _ = bytes.Cut(block, newline)
		name, v, isHeader := bytes.Cut(line, colon)
		if !isHeader {
			continue
		}
		if i := h.rank(name, best); i < best {
			best, value, ok = i, bytes.Trim(v, " \t\r"), true
		}
	}
	return value, ok
}

// Len is how many names there are.
func (h Headers) Len() int { return len(h.names) }

// FindOne is Find for the i-th name alone.
func (h Headers) FindOne(i int, block []byte) (value []byte, ok bool) {
	return Headers{h.names[i : i+1]}.Find(block)
}

var newline, colon = []byte{'\n'}, []byte{':'}

// rank returns the position of name among the first n names, or n.
func (h Headers) rank(name []byte, n int) int {
	for i, want := range h.names[:n] {
		if len(want) == len(name) && equalFold(want, name) {
			return i
		}
	}
	return n
}

func equalFold(folded, name []byte) bool {
	for i, c := range name {
		if fold[c] != folded[i] {
			return false
		}
	}
	return true
}

// fold maps letters to lower case and '_' to '-'.
var fold = func() (t [256]byte) {
	for i := range t {
		c := byte(i)
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '_':
			c = '-'
		}
		t[i] = c
	}
	return t
}()

// Key is the hash by which a session id is mapped. It is what pointsman keeps
// of a session: the id itself is neither stored nor logged.
func Key(id []byte) uint64 { return xxhash.Sum64(id) }

// Of is the key of a tenant's session: others who know its id do not share it.
func Of(session, tenant uint64) uint64 {
	if tenant == 0 {
		return session
	}
	return mix(session ^ mix(tenant))
}
