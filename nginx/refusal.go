package nginx

// appendRefusal appends the body of a refusal in OpenAI's form. The reason must be
// safe inside a JSON string; without one there is a default message.
func appendRefusal(b []byte, status int, reason string) []byte {
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
	b = append(append(b, `{"error":{"message":"`...), message...)
	b = append(append(b, `","type":"`...), kind...)
	b = append(append(b, `","param":`...), param...)
	b = append(append(b, `,"code":"`...), code...)
	return append(b, `"}}`...)
}
