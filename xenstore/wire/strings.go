package wire

import "bytes"

// Join makes a body of strings, each with the NUL that ends it. Who calls it has
// checked that there is none within.
func Join(parts ...string) []byte {
	var b []byte
	for _, s := range parts {
		b = append(b, s...)
		b = append(b, 0)
	}
	return b
}

// Split takes a body of strings apart. What is behind the last NUL is a string, too: some
// servers leave that NUL out.
func Split(body []byte) []string {
	if len(body) == 0 {
		return nil
	}
	var parts []string
	for _, s := range bytes.Split(bytes.TrimSuffix(body, []byte{0}), []byte{0}) {
		parts = append(parts, string(s))
	}
	return parts
}

// Text is a body that is one string, with or without its NUL.
func Text(body []byte) string { return string(bytes.TrimSuffix(body, []byte{0})) }
