package wire

import "bytes"

// Join returns a body of strings, each terminated by a NUL. The caller has checked that none contains one.
func Join(parts ...string) []byte {
	var b []byte
	for _, s := range parts {
		b = append(b, s...)
		b = append(b, 0)
	}
	return b
}

// Split splits a body into its strings. Bytes behind the last NUL are a string, too: some servers leave that NUL out.
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

// Text returns a body that is one string, without its NUL if it has one.
func Text(body []byte) string { return string(bytes.TrimSuffix(body, []byte{0})) }
