package control

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// Codes of an Error, for programs; its message is for people.
const (
	CodeMalformed       = "malformed"       // not a request
	CodeOperation       = "operation"       // no such operation
	CodeUnauthenticated = "unauthenticated" // the token is missing or wrong
	CodeDenied          = "denied"          // the caller lacks the permission
	CodeInvalid         = "invalid"         // a value is out of range
	CodeNotFound        = "not_found"       // no such domain, accelerator, …
	CodeConflict        = "conflict"        // impossible at present
	CodeTooLarge        = "too_large"       // the request's body is too large
	CodeTooSlow         = "too_slow"        // the request arrives too slowly, or the answer is read too slowly
	CodeEnding          = "ending"          // the daemon is about to end; retry with the next one
	CodeInternal        = "internal"
)

// statuses are the HTTP status codes of the codes.
var statuses = map[string]int{
	CodeMalformed:       http.StatusBadRequest,
	CodeOperation:       http.StatusNotFound,
	CodeUnauthenticated: http.StatusUnauthorized,
	CodeDenied:          http.StatusForbidden,
	CodeInvalid:         http.StatusUnprocessableEntity,
	CodeNotFound:        http.StatusNotFound,
	CodeConflict:        http.StatusConflict,
	CodeTooLarge:        http.StatusRequestEntityTooLarge,
	CodeTooSlow:         http.StatusRequestTimeout,
	CodeEnding:          http.StatusServiceUnavailable,
	CodeInternal:        http.StatusInternalServerError,
}

// Statuses returns the HTTP status codes of all errors, in ascending order. With them goes that of a body which is no
// JSON by its media type.
func Statuses() []int {
	all := append(slices.Collect(maps.Values(statuses)), http.StatusUnsupportedMediaType)
	slices.Sort(all)
	return slices.Compact(all)
}

// Error is the cause of a request's failure: a problem of RFC 9457 with a code.
type Error struct {
	Status  int    `json:"status" doc:"HTTP status code"`
	Title   string `json:"title" doc:"Text of the status code"`
	Code    string `json:"code" doc:"Cause, for programs"`
	Message string `json:"detail" doc:"Cause, for people: the object, its value and the remedy"`
}

// Errorf returns an Error.
func Errorf(code, format string, args ...any) *Error {
	status := statuses[code]
	return &Error{status, http.StatusText(status), code, fmt.Sprintf(format, args...)}
}

// OfStatus returns an Error with the code of an HTTP status.
func OfStatus(status int, message string) *Error {
	e := &Error{status, http.StatusText(status), CodeInternal, message}
	if status < 500 {
		e.Code = CodeMalformed
	}
	for code, s := range statuses {
		if s == status && code != CodeOperation { // which has the status of CodeNotFound
			e.Code = code
		}
	}
	return e
}

func (e *Error) Error() string { return e.Message }

// GetStatus returns the HTTP status code.
func (e *Error) GetStatus() int { return e.Status }

// ContentType returns the media type of the error instead of an answer's.
func (e *Error) ContentType(string) string { return "application/problem+json" }
