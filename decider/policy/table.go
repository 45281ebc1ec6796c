package policy

import (
	"fmt"
	"strings"

	"pointsman/decider"
)

// Table lists the policies of a program, in the order in which error messages
// name them. It is not changed after it is made, so it may be read from several
// goroutines.
type Table []Entry

// Entry describes one policy: its name, and how it is made from the options in
// a configuration.
type Entry struct {
	Name string
	// Late is set for a policy that holds requests until a replica has capacity:
	// its pool has an admission that holds in the agent.
	Late bool

	defaults any // of its options
	check    func(Options) error
	options  func(Options) (any, error)
	build    func(Options) (decider.Policy, string, error)
}

// Options gives access to the options of a policy in a configuration.
// *config.Policy implements it.
type Options interface {
	// Decode reads the options into the struct that into points to. Options that
	// are not set keep their value there.
	Decode(into any) error
	// Refuse returns an error at the position of an option.
	Refuse(option, format string, args ...any) error
}

// Validator is implemented by the options of every policy. The error of Validate
// begins with the name of the option at fault and a colon; it is reported at that
// option. Validate builds nothing.
type Validator interface{ Validate() error }

// Plain returns the entry of a policy without options.
func Plain(name string, build func() decider.Policy) Entry {
	return With(name, none{}, func(none) (decider.Policy, error) { return build(), nil })
}

// none are the options of a policy without any.
type none struct{}

func (none) Validate() error { return nil }

// With returns the entry of a policy with options of type O and their defaults.
func With[O Validator, P decider.Policy](name string, defaults O, build func(O) (P, error)) Entry {
	decode := func(from Options) (O, error) {
		o := defaults
		if err := from.Decode(&o); err != nil {
			return o, err
		}
		return o, at(from, o.Validate())
	}
	return Entry{
		Name: name, defaults: defaults,
		check: func(from Options) error {
			_, err := decode(from)
			return err
		},
		options: func(from Options) (any, error) { return decode(from) },
		build: func(from Options) (decider.Policy, string, error) {
			o, err := decode(from)
			if err != nil {
				return nil, "", err
			}
			p, err := build(o)
			if err != nil {
				return nil, "", at(from, err)
			}
			return p, fmt.Sprintf("%s %+v", name, o), nil
		},
	}
}

// at gives an error the position of the option that it begins with.
func at(from Options, err error) error {
	if err == nil {
		return nil
	}
	if option, message, ok := strings.Cut(err.Error(), ": "); ok {
		return from.Refuse(option, "%s", message)
	}
	return err
}

// BindsLate returns the entry with Late set.
func (e Entry) BindsLate() Entry {
	e.Late = true
	return e
}

// Names returns the names in the order of the table.
func (t Table) Names() []string {
	names := make([]string, len(t))
	for i, e := range t {
		names[i] = e.Name
	}
	return names
}

// Late reports whether the policy of that name holds requests.
func (t Table) Late(name string) bool {
	e := t.entry(name)
	return e != nil && e.Late
}

// Check validates the options of a policy.
func (t Table) Check(name string, from Options) error {
	e := t.entry(name)
	if e == nil {
		return fmt.Errorf("unknown policy %s", name)
	}
	return e.check(from)
}

// Options returns the options of a policy with their defaults, as a struct with yaml
// tags.
func (t Table) Options(name string, from Options) (any, error) {
	e := t.entry(name)
	if e == nil {
		return nil, fmt.Errorf("unknown policy %s", name)
	}
	return e.options(from)
}

// Defaults returns the default options of a policy, a struct with yaml tags; nil for a
// name that is not in the table.
func (t Table) Defaults(name string) any {
	e := t.entry(name)
	if e == nil {
		return nil
	}
	return e.defaults
}

// New returns a policy with the options of a configuration. The key is equal for
// policies of equal options, so that a reload can keep the state of a policy
// that stays the same.
func (t Table) New(name string, from Options) (p decider.Policy, key string, err error) {
	e := t.entry(name)
	if e == nil {
		return nil, "", fmt.Errorf("unknown policy %s", name)
	}
	return e.build(from)
}

func (t Table) entry(name string) *Entry {
	for i := range t {
		if t[i].Name == name {
			return &t[i]
		}
	}
	return nil
}
