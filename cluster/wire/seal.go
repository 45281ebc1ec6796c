package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Version is that of the messages. An agent ignores those of another version.
const Version = 2

// Kind is what a message is.
type Kind uint8

// The kinds of messages.
const (
	KindBatch Kind = iota + 1 // events of an agent
	KindAsk                   // a request to an agent, or to all
	KindPart                  // a part of a snapshot
	KindUsage                 // what clients have used of their budgets
	kinds
)

// MostMessage bounds a message, in bytes. NATS servers accept 1 MiB by default.
const MostMessage = 768 << 10

// mostName bounds names: of agents, pools, replicas, bands and adapters.
const mostName = 255

// Errors of Head and Open.
var (
	ErrVersion   = errors.New("a message of another version")
	ErrMalformed = errors.New("a malformed message")
	ErrSecret    = errors.New("a message that was not sealed with the cluster's secret")
)

// Head is the part of a message that is not encrypted.
type Head struct {
	Kind  Kind
	Epoch uint64 // of the sender: a number for each of its lives
	From  string // the sender
}

var magic = [3]byte{'p', 'm', 'c'}

// append appends the head to dst.
func (h *Head) append(dst []byte) []byte {
	dst = append(dst, magic[0], magic[1], magic[2], Version, byte(h.Kind))
	dst = binary.BigEndian.AppendUint64(dst, h.Epoch)
	dst = append(dst, byte(len(h.From)))
	return append(dst, h.From...)
}

// ReadHead reads the head of a message. The rest is for Key.Open.
func ReadHead(b []byte) (h Head, n int, err error) {
	if len(b) < 4 || [3]byte(b[:3]) != magic {
		return h, 0, ErrMalformed
	}
	if b[3] != Version {
		return h, 0, ErrVersion
	}
	if len(b) < 14 || len(b) > MostMessage {
		return h, 0, ErrMalformed
	}
	h.Kind, h.Epoch = Kind(b[4]), binary.BigEndian.Uint64(b[5:])
	n = 14 + int(b[13])
	if h.Kind == 0 || h.Kind >= kinds || len(b) < n || n == 14 {
		return h, 0, ErrMalformed
	}
	h.From = string(b[14:n])
	return h, n, nil
}

// Secret is the secret that the agents of a cluster share.
type Secret struct{ key [sha256.Size]byte }

// NewSecret derives the secret of the cluster of that name from the configured one.
func NewSecret(cluster string, configured []byte) Secret {
	return Secret{sum(configured, "pointsman cluster", cluster)}
}

// Derive returns a secret for another use. It reveals nothing about s.
func (s Secret) Derive(use string) []byte {
	d := sum(s.key[:], "derive", use)
	return d[:]
}

func sum(key []byte, parts ...string) (out [sha256.Size]byte) {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	h.Sum(out[:0])
	return out
}

// Key seals and opens the messages of one life of one agent.
type Key struct{ aead cipher.AEAD }

// Key returns the key of an agent's messages in that epoch.
func (s Secret) Key(from string, epoch uint64) Key {
	var e [8]byte
	binary.BigEndian.PutUint64(e[:], epoch)
	k := sum(s.key[:], "message", from, string(e[:]))
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // the length is right
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return Key{aead}
}

// Seal appends to dst the message that carries body.
func (k Key) Seal(dst []byte, h Head, body []byte) []byte {
	from := len(dst)
	dst = h.append(dst)
	return k.aead.Seal(dst, nil, body, dst[from:len(dst):len(dst)])
}

// Open appends the body of the message b to dst. Its head has n bytes.
func (k Key) Open(dst, b []byte, n int) ([]byte, error) {
	body, err := k.aead.Open(dst, nil, b[n:], b[:n])
	if err != nil {
		return dst, ErrSecret
	}
	return body, nil
}
