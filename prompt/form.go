package prompt

import "bytes"

// maxFormValue bounds the value of a field of a form, and the lines before it, in bytes.
const maxFormValue = 256

// form reads the model from a form with a file in it, as audio and images are sent. Its
// other fields hold little text, and are not charged.
func (b *Body) form(data []byte) {
	if b.Model == nil {
		b.Model = formValue(data, modelField)
	}
	if v := formValue(data, streamField); v != nil {
		b.Stream = bytes.EqualFold(v, trueWord)
	}
}

var (
	modelField  = []byte(`name="model"`)
	streamField = []byte(`name="stream"`)
	trueWord    = []byte("true")
	blankLine   = []byte("\r\n\r\n")
)

// formValue returns the value of the field whose part has that line, nil if it is not
// there or odd. It may find it in a file: the client has sent that, too.
func formValue(data, field []byte) []byte {
	i := bytes.Index(data, field)
	if i < 0 {
		return nil
	}
	data = data[i+len(field):]
	if i = bytes.Index(data[:min(len(data), maxFormValue)], blankLine); i < 0 {
		return nil
	}
	data = data[i+len(blankLine):]
	if i = bytes.Index(data[:min(len(data), maxFormValue)], blankLine[:2]); i < 0 {
		return nil
	}
	for _, c := range data[:i] {
		if c < ' ' {
			return nil
		}
	}
	return data[:i:i]
}
