package tracing

// A parent is what a traceparent header names.
type parent struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// parse reads a W3C traceparent: 00-<32 digits>-<16 digits>-<2 digits>, all of them
// hexadecimal in lower case. Later versions may add to it. Anything else is no parent.
func parse(v []byte) (p parent, ok bool) {
	const length = 55
	if len(v) < length || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return p, false
	}
	var version, flags [1]byte
	if !unhex(version[:], v[:2]) || version[0] == 0xff || !unhex(p.trace[:], v[3:35]) || !unhex(p.span[:], v[36:52]) || !unhex(flags[:], v[53:55]) {
		return parent{}, false
	}
	if version[0] == 0 && len(v) != length || len(v) > length && v[length] != '-' {
		return parent{}, false
	}
	if p.trace == [16]byte{} || p.span == [8]byte{} {
		return parent{}, false
	}
	p.sampled = flags[0]&1 == 1
	return p, true
}

// unhex reads the digits of src into dst, of half its length.
func unhex(dst, src []byte) bool {
	for i := range dst {
		hi, lo := digit(src[2*i]), digit(src[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}
