package nginx

// appendRefusal appends the body of a refusal in the form of the client's API:
// Anthropic's Messages or OpenAI's. The reason must be safe inside a JSON string; without one
// there is a default message.
func appendRefusal(b []byte, status int, reason string, messages bool) []byte {
	message, kind, param, code := "No replica is available.", "server_error", "null", "service_unavailable"
	switch status {
	case 400:
		message, kind, code = "The request cannot be read.", "invalid_request_error", "bad_request"
	case 404:
		message, kind, param, code = "The model does not exist.", "invalid_request_error", `"model"`, "model_not_found"
	case 429:
		message, kind, code = "Too many requests.", "rate_limit_error", "rate_limit_exceeded"
	}
	if reason != "" {
		message = reason
	}
	if messages {
		switch status {
		case 404:
			kind = "not_found_error"
		case 503:
			kind = "overloaded_error"
		}
		b = append(append(b, `{"type":"error","error":{"type":"`...), kind...)
		b = append(append(b, `","message":"`...), message...)
		return append(b, `"}}`...)
	}
	b = append(append(b, `{"error":{"message":"`...), message...)
	b = append(append(b, `","type":"`...), kind...)
	b = append(append(b, `","param":`...), param...)
	b = append(append(b, `,"code":"`...), code...)
	return append(b, `"}}`...)
}
