package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Request is one line from the command.
type Request struct {
	Version int             `json:"v"`
	ID      uint64          `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params,omitempty"`
}

// Answer is one line from the daemon. A stream's answers have More until the last.
type Answer struct {
	Version int             `json:"v"`
	ID      uint64          `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
	More    bool            `json:"more,omitempty"`
}

// Codes of an Error, for programs; its message is for people.
const (
	CodeMalformed = "malformed" // not a request
	CodeVersion   = "version"   // a request of another version
	CodeMethod    = "method"    // no such method
	CodeDenied    = "denied"    // the caller lacks the permission
	CodeInvalid   = "invalid"   // a value is out of range
	CodeNotFound  = "not_found" // no such domain, accelerator, …
	CodeConflict  = "conflict"  // impossible at present
	CodeEnding    = "ending"    // the daemon is about to end; retry with the next one
	CodeInternal  = "internal"
)

// Error is the cause of a request's failure.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

var errTooLong = errors.New("line too long")

// readLine returns the next line without its end, of at most limit bytes with it.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// DecodeRequest decodes one request line. Its error can be sent back; the request then has all fields that were
// decoded, so that its ID can be echoed.
func DecodeRequest(line []byte) (Request, *Error) {
	var q Request
	if len(line)+1 > MaxRequest {
		return q, Errorf(CodeMalformed, "request is longer than %d bytes", MaxRequest)
	}
	if err := strict(line, &q); err != nil {
		return q, Errorf(CodeMalformed, "not a request: %v", err)
	}
	if q.Version != Version {
		return q, Errorf(CodeVersion, "protocol version %d isn't spoken here; this daemon speaks %d (pegasus and pegasusd should be of one release)", q.Version, Version)
	}
	return q, nil
}

// Decode decodes the parameters into v and rejects unknown fields. Without parameters v is unchanged.
func (q *Request) Decode(v any) error {
	if len(q.Params) == 0 {
		return nil
	}
	if err := strict(q.Params, v); err != nil {
		return Errorf(CodeInvalid, "%s: parameters: %v", q.Method, err)
	}
	return nil
}

func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// encode writes v as one line.
func encode(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
