package spoa

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/negasus/haproxy-spoe-go/frame"
	"github.com/negasus/haproxy-spoe-go/typeddata"
)

// decoded returns a NOTIFY frame in a buffer of its own, decoded.
func decoded(f []byte) (*buffer, error) {
	h, err := readHeader(f[prefixLen:])
	if err != nil {
		return nil, err
	}
	if h.kind != frame.TypeNotify {
		return nil, errUnknown
	}
	b := getBuffer(len(f))
	copy(b.bytes, f)
	return b, b.decodeNotify(b.bytes, prefixLen+h.size)
}

// libraryValue is a value as the library decodes it.
func libraryValue(v value) any {
	switch v.kind {
	case typeddata.TypeBoolean:
		return v.number != 0
	case typeddata.TypeInt32:
		return int32(v.number)
	case typeddata.TypeUInt32:
		return uint32(v.number)
	case typeddata.TypeInt64:
		return int64(v.number)
	case typeddata.TypeUInt64:
		return v.number
	case typeddata.TypeString:
		return string(v.bytes)
	case typeddata.TypeBinary:
		return v.bytes
	}
	return nil
}

// agrees compares what the frame decodes to with what the library makes of it.
func agrees(t *testing.T, f []byte) {
	b, err := decoded(f)
	if err != nil {
		return
	}
	defer b.free()
	l := frame.NewFrame()
	if err := l.Read(bytes.NewReader(f)); err != nil {
		t.Fatalf("accepted, but the library says: %v", err)
	}
	if len(b.messages) != l.Messages.Len() {
		t.Fatalf("%d messages, want %d", len(b.messages), l.Messages.Len())
	}
	for i, m := range b.messages {
		want, _ := l.Messages.GetByIndex(i)
		args := b.args[m.from:m.to]
		if string(m.name) != want.Name || len(args) != len(want.KV.Data()) {
			t.Fatalf("message %q of %d arguments, want %q of %d", m.name, len(args), want.Name, len(want.KV.Data()))
		}
		for j, w := range want.KV.Data() {
			a := args[j]
			if a.value.kind == typeddata.TypeIPv4 || a.value.kind == typeddata.TypeIPv6 {
				w.Value = nil // nobody asks for addresses
			}
			if got := libraryValue(a.value); string(a.name) != w.Name || fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", w.Value, w.Value) {
				t.Errorf("%q = %T %v, want %q = %T %v", a.name, got, got, w.Name, w.Value, w.Value)
			}
		}
	}
}

// sampleFrames are NOTIFY frames with values of every type.
func sampleFrames() [][]byte {
	return [][]byte{
		notifyOf(1, 1),
		notifyOf(1<<63, 3, messageOf("m",
			arg{"i32", int32(-5)}, arg{"u32", uint32(1 << 31)}, arg{"i64", int64(-6)}, arg{"u64", uint64(1<<64 - 1)},
			arg{"yes", true}, arg{"no", false}, arg{"none", nil}, arg{"text", "abc"}, arg{"bin", body(1, 5_000)}, arg{"", ""},
			arg{"ip4", raw{6, 1, 2, 3, 4}}, arg{"ip6", append(raw{7}, make([]byte, 16)...)}), messageOf(""), messageOf("n", arg{"i32", int32(1)})),
	}
}

func TestDecodeAgreesWithTheLibrary(t *testing.T) {
	for _, f := range sampleFrames() {
		if _, err := decoded(f); err != nil {
			t.Error(err)
		}
		agrees(t, f)
	}
}

// FuzzDecode: whatever our decoder accepts, the library decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, b := range sampleFrames() {
		f.Add(b[prefixLen:])
	}
	for _, b := range brokenFrames() {
		f.Add(b[prefixLen:])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) >= minFrame {
			agrees(t, append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...))
		}
	})
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for _, f := range sampleFrames() {
		b, err := decoded(f)
		must(t, err)
		h, err := readHeader(f[prefixLen:])
		must(t, err)
		n := testing.AllocsPerRun(100, func() {
			b.reset()
			if err := b.decodeNotify(b.bytes, prefixLen+h.size); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
		b.free()
	}
}

// A frame of very many arguments does not leave its memory to later ones.
func TestBuffersStaySmall(t *testing.T) {
	m := frameOf(3, 1, 1, 1, bytes.Repeat(append([]byte{1, 'a', 255}, make([]byte, 2*255)...), 4))
	b, err := decoded(m)
	if err != nil || len(b.args) != 4*255 {
		t.Fatalf("%d arguments, %v", len(b.args), err)
	}
	b.free()
	if cap(b.args) > keepArgs {
		t.Errorf("room for %d arguments is kept", cap(b.args))
	}
}

// Two values that follow each other become one, and nothing else changes.
func TestJoin(t *testing.T) {
	arg := func(name, value string) []byte {
		b := append([]byte{byte(len(name))}, name...)
		return append(append(b, typeddata.TypeString, byte(len(value))), value...)
	}
	frame := append([]byte{1, 'm', 5}, arg("rid", "one")...)
	for _, a := range [][2]string{{"head", "abc"}, {"tail", "defg"}, {"model", "x"}, {"last", "y"}} {
		frame = append(frame, arg(a[0], a[1])...)
	}
	b := &buffer{bytes: frame}
	if err := b.decodeNotify(frame, 0); err != nil {
		t.Fatal(err)
	}
	m := &Message{message: b.messages[0], call: &call{frame: b}}
	for _, apart := range [][2]string{{"tail", "head"}, {"head", "model"}, {"none", "tail"}, {"last", "none"}} {
		if got := m.Join(apart[0], apart[1]); got != nil {
			t.Errorf("%v join to %q", apart, got)
		}
	}
	if got := string(m.Join("head", "tail")); got != "abcdefg" {
		t.Errorf("joined to %q", got)
	}
	if m.Bytes("head") != nil || m.Bytes("tail") != nil || m.String("rid") != "one" || m.String("model") != "x" || m.String("last") != "y" {
		t.Errorf("others have changed: %q", frame)
	}
}
