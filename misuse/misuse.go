// Package misuse marks errors in how a command is called: a flag or an argument that is
// wrong, does not fit the others, or names nothing that is there. An error is marked where
// it is made, as only that place knows whether the user or the machine has to change.
package misuse

import (
	"errors"
	"fmt"
)

// Error is an error in how a command is called.
type Error struct{ error }

// Unwrap returns the error without the mark.
func (e Error) Unwrap() error { return e.error }

// Of marks an error; nil stays nil.
func Of(err error) error {
	if err == nil {
		return nil
	}
	return Error{err}
}

// Errorf makes a marked error as fmt.Errorf makes one.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Is reports whether err, or an error that it wraps, is marked.
func Is(err error) bool {
	_, ok := errors.AsType[Error](err)
	return ok
}
