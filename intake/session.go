package intake

import (
	"sync/atomic"

	"pointsman/prompt"
	"pointsman/session"
)

// SessionField is a field of a body that names a session.
type SessionField uint8

// The fields, by their names in SessionFieldOf.
const (
	noField SessionField = iota
	conversationField
	promptCacheKeyField
	metadataSessionField
	metadataUserField
)

// SessionFieldOf returns the field of that name, or one that no body has.
func SessionFieldOf(name string) SessionField {
	switch name {
	case "conversation":
		return conversationField
	case "prompt_cache_key":
		return promptCacheKeyField
	case "metadata.session_id":
		return metadataSessionField
	case "metadata.user_id":
		return metadataUserField
	}
	return noField
}

// in returns the value of the field in a body.
func (f SessionField) in(b *prompt.Body) []byte {
	switch f {
	case conversationField:
		return b.Conversation
	case promptCacheKeyField:
		return b.PromptCacheKey
	case metadataSessionField:
		return b.MetadataSession
	case metadataUserField:
		return b.MetadataUser
	}
	return nil
}

// findSession finds the session of r: by a header, else by a field of the body, else by the
// response that it continues.
func (i *Intake) findSession(t *table, r *Request, headers []byte) {
	if id, ok := t.session.Find(headers); ok && len(id) > 0 {
		r.Session, r.HasSession = session.Key(id), true
	}
	for _, f := range t.fields {
		if id := f.in(r.body); !r.HasSession && len(id) > 0 {
			r.Session, r.HasSession = session.Key(id), true
		}
	}
	if len(t.fields) == 0 || len(r.body.PreviousResponse) == 0 {
		return
	}
	before := session.Key(r.body.PreviousResponse)
	if r.HasSession {
		i.responses.put(before, r.Session)
		return
	}
	r.Session, r.HasSession = before, true
	if s, ok := i.responses.get(before); ok {
		r.Session = s
	}
}

// responses maps past responses to their sessions, as far as requests have shown them: a
// response's id is in an answer, which no agent sees, but a request that continues it may
// name its session. Its size is fixed; a later response takes the place of another. It is
// safe for concurrent use and has no lock.
type responses [responsesKept]struct{ mixed, session atomic.Uint64 }

const responsesKept = 1 << 14 // 256 KiB

// put notes that the response of that key is part of a session.
func (t *responses) put(key, session uint64) {
	e := &t[key%responsesKept]
	e.mixed.Store(key ^ session)
	e.session.Store(session)
}

// get returns the session of the response. It does not find an entry that another call is
// changing.
func (t *responses) get(key uint64) (session uint64, ok bool) {
	e := &t[key%responsesKept]
	session = e.session.Load()
	return session, session != 0 && e.mixed.Load()^session == key
}
