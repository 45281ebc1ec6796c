package record

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
)

// What the header says of who recorded, and in which form.
const (
	By   = "pointsman"
	Form = 1
)

// Header is the first line of a recording, and of each of its files.
type Header struct {
	Recorder string       `json:"recorder"`
	Form     int          `json:"form"`
	Time     string       `json:"time"` // when it began
	Pools    []HeaderPool `json:"pools"`
}

// HeaderPool is what a pool was as the recording began.
type HeaderPool struct {
	Name        string `json:"name"`
	Policy      string `json:"policy"`           // with its options, as in the configuration
	Shadow      bool   `json:"shadow,omitempty"` // the proxy balances by itself
	Replicas    int    `json:"replicas"`
	CacheTokens int    `json:"cache_tokens"` // of the replica with the least
}

// header describes the pools of d as they are now.
func header(d *decider.Decider) []byte {
	h := Header{Recorder: By, Form: Form, Time: time.Now().UTC().Format(time.RFC3339), Pools: []HeaderPool{}}
	for _, p := range d.Pools() {
		s := p.Status()
		pool := HeaderPool{Name: s.Name, Policy: cmp.Or(s.PolicyFlow, s.Policy), Shadow: s.Shadow != nil && s.Shadow.Share == 1, Replicas: len(s.Replicas)}
		for i, r := range s.Replicas {
			if i == 0 || r.CacheTokens < pool.CacheTokens {
				pool.CacheTokens = r.CacheTokens
			}
		}
		h.Pools = append(h.Pools, pool)
	}
	text, err := sonic.ConfigStd.Marshal(&h)
	if err != nil {
		panic(err) // our own types always marshal
	}
	return append(text, '\n')
}

// salt is what the hashes of one file are made with. Nobody knows it, and it is
// never stored: two files cannot be compared, and no hash can be tried.
type salt [16]byte

func newSalt() (s salt) {
	_, _ = rand.Read(s[:]) // it never fails
	return s
}

// What a hash is of: equal numbers of different kinds have different hashes.
const (
	ofBlock = iota + 1
	ofSession
	ofTenant
)

// hashBits is the length of a hash: so many bits that the blocks of a recording
// differ, and so few that readers which take numbers for floats keep them whole.
const hashBits = 52

// hash is a keyed hash of a number.
func (s *salt) hash(of byte, n uint64) uint64 {
	var b [len(s) + 9]byte
	copy(b[:], s[:])
	b[len(s)] = of
	binary.LittleEndian.PutUint64(b[len(s)+1:], n)
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint64(sum[:]) >> (64 - hashBits)
}

// appendLine appends the line of a request. epoch is when the decider's clock
// was 0.
func (s *salt) appendLine(b []byte, e *entry, epoch time.Time) []byte {
	r := &e.request
	number := func(key string, n int64) {
		b = append(append(append(b, `,"`...), key...), `":`...)
		b = strconv.AppendInt(b, n, 10)
	}
	seconds := func(key string, d time.Duration) {
		b = append(append(append(b, `,"`...), key...), `":`...)
		b = strconv.AppendFloat(b, d.Seconds(), 'f', 4, 64)
	}
	text := func(key, value string) {
		if value == "" {
			return
		}
		b = append(append(append(b, `,"`...), key...), `":`...)
		quoted, err := sonic.ConfigStd.Marshal(value)
		if err != nil {
			panic(err) // strings always marshal
		}
		b = append(b, quoted...)
	}
	id := func(key string, of byte, n uint64) {
		var raw [8]byte
		binary.BigEndian.PutUint64(raw[:], s.hash(of, n))
		b = append(append(append(b, `,"`...), key...), `":"`...)
		b = append(hex.AppendEncode(b, raw[1:]), '"')
	}
	b = append(b, `{"timestamp":`...)
	b = strconv.AppendInt(b, epoch.Add(e.At).UnixMilli(), 10)
	number("input_length", int64(max(r.Input, 1)))
	if e.Output >= 0 {
		number("output_length", int64(e.Output))
	}
	if r.Output > 0 {
		number("max_tokens", int64(r.Output))
	}
	text("pool", e.Pool)
	text("model", r.Model)
	if r.HasSession {
		id("session", ofSession, r.Session)
	}
	text("band", e.Band)
	if r.Tenant != 0 {
		id("tenant", ofTenant, r.Tenant)
	}
	b = append(b, `,"stream":`...)
	b = strconv.AppendBool(b, r.Stream)
	if r.Cut {
		b = append(b, `,"cut":true`...)
	}
	text("outcome", e.Outcome)
	if e.Status != 0 {
		number("status", int64(e.Status))
	}
	if e.TTFT > 0 {
		seconds("ttft", e.TTFT)
	}
	seconds("duration", e.Lasted)
	number("block_tokens", int64(e.BlockTokens))
	b = append(b, `,"hash_ids":[`...)
	for i, key := range e.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, s.hash(ofBlock, key), 10)
	}
	return append(b, "]}\n"...)
}
