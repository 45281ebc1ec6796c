package budget

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"
)

// A snapshot holds the counts of a ledger, for its next life after a restart: for each
// account its limit, its id and, for each window, pairs of the age of a part, in steps, and
// its tokens. Ages are relative to the snapshot.
const snapshotVersion = 1

// Snapshot appends the counts of all windows.
func (l *Ledger) Snapshot(dst []byte) []byte {
	dst = append(dst, snapshotVersion)
	for from := 0; l.step(&from, func(a *account, now time.Duration) {
		if a.used[Minute].sum == 0 && a.used[Day].sum == 0 {
			return
		}
		dst = binary.LittleEndian.AppendUint64(dst, a.key.limit)
		dst = append(dst, a.key.id[:]...)
		for w := range windows {
			dst = a.used[w].snapshot(dst, w, now)
		}
	}); {
	}
	return dst
}

func (c *counter) snapshot(dst []byte, w Window, now time.Duration) []byte {
	c.advance(w, now)
	n := uint64(0)
	for _, p := range c.parts {
		if p > 0 {
			n++
		}
	}
	dst = binary.AppendUvarint(dst, n)
	for age := range int64(len(c.parts)) {
		if p := c.parts[(c.at-age)%int64(len(c.parts))]; p > 0 {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(age)), uint64(p))
		}
	}
	return dst
}

var errDamaged = errors.New("what was counted of tokens is damaged, or of another version")

// Restore adds the counts of a snapshot of an earlier life, for the limits that exist. age
// is how old it is.
func (l *Ledger) Restore(b []byte, age time.Duration) error {
	t := l.table.Load()
	if t == nil || len(b) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	r := bytes.NewReader(b)
	if v, err := r.ReadByte(); err != nil || v != snapshotVersion {
		return errDamaged
	}
	for r.Len() > 0 {
		var key struct {
			Limit uint64
			ID    ID
		}
		if binary.Read(r, binary.LittleEndian, &key) != nil {
			return errDamaged
		}
		limit := t.marked(key.Limit)
		for w := range windows {
			n, err := binary.ReadUvarint(r)
			if err != nil || n > uint64(w.span()/w.step())+1 {
				return errDamaged
			}
			for range n {
				ago, err := binary.ReadUvarint(r)
				tokens, err2 := binary.ReadUvarint(r)
				if err != nil || err2 != nil || ago > uint64(w.span()/w.step()) || tokens > mostTokens {
					return errDamaged
				}
				at := now - time.Duration(ago)*w.step() - max(age, 0)
				if limit == nil || limit.most[w] == 0 || at < -epoch {
					continue
				}
				a := &l.accounts[l.open(limit, key.ID, t.keys[key.ID] != nil, now)]
				a.used[w].add(w, int64(tokens), at, now)
			}
		}
	}
	return nil
}
