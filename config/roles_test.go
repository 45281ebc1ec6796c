package config

import (
	"strings"
	"testing"
)

// A prompt that is computed elsewhere takes two requests, and a proxy sends one.
func TestRoles(t *testing.T) {
	const pd = "p1: {address: '10.0.0.1:1', role: prefill}, d1: {address: '10.0.0.2:1', role: decode}, b1: {address: '10.0.0.3:1'}"
	c, err := Parse("f", []byte("pools: {a: {models: [m], sidecar: llm-d, prefill_tokens: 512, replicas: {"+pd+"}}}"), nil, checks)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools["a"]
	serving := ""
	for _, r := range p.Serving() {
		serving += r.Name + " "
	}
	if serving != "d1 b1 " || !p.Prefills() || p.Replicas["b1"].Role != RoleBoth || c.PrefillHeader != DefaultPrefillHeader {
		t.Errorf("serving %q, prefills %v, b1 is %q, header %q", serving, p.Prefills(), p.Replicas["b1"].Role, c.PrefillHeader)
	}
	for text, prefills := range map[string]bool{
		"pools: {a: {models: [m], sidecar: llm-d, discover: {dns: 'd:1', prefill_dns: 'p:1'}}}": true,
		"pools: {a: {models: [m], sidecar: llm-d, discover: {file: /f}}}":                       true,
		"pools: {a: {models: [m], sidecar: llm-d, discover: {dns: 'd:1'}}}":                     false,
		"pools: {a: {models: [m], discover: {file: /f}}}":                                       false,
	} {
		if c, err := Parse("f", []byte(text), nil, checks); err != nil || c.Pools["a"].Prefills() != prefills {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"pools: {a: {models: [m], replicas: {" + pd + "}}}":                                                                             "and set the pool's sidecar: llm-d",
		"pools: {a: {models: [m], engine: sglang, replicas: {" + pd + "}}}":                                                             "takes two requests for each of a client's",
		"pools: {a: {models: [m], sidecar: llm-d, engine: trtllm, replicas: {" + pd + "}}}":                                             "does not know trtllm",
		"pools: {a: {models: [m], sidecar: llm-d, data_parallel: 2, replicas: {" + pd + "}}}":                                           "a server of its own",
		"pools: {a: {models: [m], sidecar: nixl, replicas: {" + pd + "}}}":                                                              "want llm-d",
		"pools: {a: {models: [m], sidecar: llm-d, replicas: {p1: {address: '10.0.0.1:1', role: prefill}, b: {address: '10.0.0.2:1'}}}}": "no replica has the role decode",
		"pools: {a: {models: [m], sidecar: llm-d, replicas: {p1: {address: '10.0.0.1:1', role: prefil}}}}":                              "want both, prefill or decode",
		"pools: {a: {models: [m], prefill_tokens: -1, replicas: {" + pd + "}}}":                                                         "prefill_tokens",
		"pools: {a: {models: [m], discover: {dns: 'd:1', prefill_dns: 'p:1'}}}":                                                         "and set the pool's sidecar: llm-d",
		"pools: {a: {models: [m], sidecar: llm-d, discover: {prefill_dns: 'p:1'}}}":                                                     "want dns too",
		"pools: {a: {models: [m], sidecar: llm-d, discover: {file: /f, prefill_dns: 'p:1'}}}":                                           "have a label role instead",
		"pools: {a: {models: [m], sidecar: llm-d, discover: {dns: 'p:1', prefill_dns: 'p:1'}}}":                                         "is the name of the replicas that generate",
		"pools: {a: {models: [m], sidecar: llm-d, discover: {dns: 'd:1', prefill_dns: p}}}":                                             "want name:port",
		"pools: {a: {models: [m], sidecar: llm-d, engine: trtllm, discover: {file: /f}}}":                                               "does not know trtllm",
		"prefill_header: 'x y'\npools: {a: {models: [m], replicas: {b: {address: '10.0.0.2:1'}}}}":                                      "is no header",
		"rank_header: \"x\\nuse_backend y\"\npools: {a: {models: [m], replicas: {b: {address: '10.0.0.2:1'}}}}":                         "is no header",
	} {
		if _, err := Parse("f", []byte(text), nil, checks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %q", text, err, want)
		}
	}
}
