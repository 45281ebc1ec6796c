// Package prompt reads what routing needs out of the JSON body of an LLM
// request in one forward pass. The body may be cut anywhere, as a proxy's
// buffer cuts it: what was wholly there is reported, what was not is absent.
//
// # The canonical stream
//
// The text of a request is turned into a stream of bytes of which
// [Body.Blocks] hashes the full blocks. Equal prompts give equal streams, and
// the stream of a conversation's turn is a prefix of the next turn's stream.
// Its order is fixed, whatever the order of the body's keys: a chat template and
// its settings, then tool definitions, then a chat's documents, then system or
// instructions, then messages, prompt or input, then documents to rank.
// A client that writes tools after messages keeps its prefix by that.
//
// Text is in the stream as JSON writes it at its shortest: a line feed is \n, a
// quote is \", other characters are themselves. Most bodies are written so, and
// are hashed where they lie. Every piece of text starts with the byte 0xFF and a
// byte for its kind (role, text, reasoning, name, arguments, media …). 0xFF does
// not occur in UTF-8, so no text can pass for a separator; a body that is not
// UTF-8 can, and engines refuse it.
//
// Made equal: white space between tokens; spellings of a string's characters
// (A and \u0041); content as a string and as one text part; keys in any order
// in the body, in a message and in a part; keys that are not part of the prompt
// (cache_control, tool_call_id, detail, name of a file …); system as a string
// or as one text part; an image's address as a string or as {url}; a single
// prompt and an array of one.
//
// Not made equal, for the sake of speed: tool definitions and a tool call's
// arguments given as an object are taken byte for byte, and the digest of an
// image or a recording is of its JSON spelling; \/ and / differ; empty text and
// absent text differ. Not in the stream: audio by id, and content nested deeper
// than a part of a tool's result.
//
// # What is not read
//
// What is no JSON object in UTF-8 (another encoding above all), and the values of
// a request to an endpoint that is not known, enter no block. Their length is in
// Unseen, so that no prompt is free because of its form. A byte order mark is
// skipped, as decoders do.
//
// # Cut bodies
//
// The blocks of a cut body are the first blocks of the whole body's, with one
// exception that no scan can avoid: when tools or system come after the cut, the
// stream starts without them. Turns that are all cut before the tools still
// share their prefix with one another. A piece whose place in the stream is
// not yet certain at the cut (text of a message whose role was not seen, a
// tool call before the end of its message) counts in TextBytes but enters no
// block.
//
// # Duplicate keys
//
// The last one counts, as in the decoders of the engines; a scalar whose last
// value has the wrong type is absent. Where text is expected a later value
// without any (null above all) leaves an earlier one standing, because clients
// write "prompt": null beside messages.
//
// # Bounds
//
// At most the limit's bytes are looked at and 16,384 pieces of text recorded.
// Beyond those pieces the stream ends (tools or system found later begin it, and
// so leave nothing) and Complete stays false, while the scalars are read to the
// end. What is skipped is not checked beyond its quotes and the number of its
// brackets. A Body keeps its buffers for the next scan; they grow to no more than
// a few times the largest body seen. Skipping is iterative; the known shapes nest
// four deep at most.
package prompt
