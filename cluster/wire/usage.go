package wire

import (
	"encoding/binary"

	"pointsman/decider/budget"
)

// MostUsage bounds the reports of budgets in a message.
const MostUsage = 8 << 10

// AppendUsage appends the body of a message about what clients have used.
func AppendUsage(dst []byte, reports []budget.Report) []byte {
	for i := range reports {
		r := &reports[i]
		dst = binary.LittleEndian.AppendUint64(dst, r.Limit)
		dst = append(dst, r.ID[:]...)
		for _, used := range r.Used {
			dst = appendUint(dst, uint64(max(used, 0)))
		}
	}
	return dst
}

// ReadUsage appends the reports of such a body.
func ReadUsage(dst []budget.Report, body []byte) ([]budget.Report, error) {
	d := reader{rest: body}
	for len(d.rest) > 0 {
		r := budget.Report{Limit: d.fixed()}
		copy(r.ID[:], d.bytes(len(r.ID)))
		for w := range r.Used {
			r.Used[w] = int64(min(d.uint(), 1<<62))
		}
		if d.failed || len(dst) == MostUsage {
			return dst, ErrMalformed
		}
		dst = append(dst, r)
	}
	return dst, nil
}
