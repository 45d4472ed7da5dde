package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
)

// Roles of callers. The role operate includes the role view.
const (
	viewer   = "view"
	operator = "operate"
)

// shortestToken is the least length of a token, in bytes.
const shortestToken = 16

// caller is the process or the client at the other end of a request.
type caller struct {
	control.Peer
	tcp  bool
	role string // once the request is authorized
}

type callerKey struct{}

// callerOf returns the other end of a request.
func callerOf(ctx context.Context) caller {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		c.UID, c.GID = -1, -1 // no user
	}
	return c
}

// peerOf returns the process at the other end of a request.
func peerOf(ctx context.Context) control.Peer { return callerOf(ctx).Peer }

// authorize returns an error if a request lacks the role. It returns the request's context, which has the role for the
// journal.
func (s *Server) authorize(ctx context.Context, header, role string) (context.Context, error) {
	c := callerOf(ctx)
	has, err := s.roleOf(c, header)
	if err != nil {
		return ctx, err
	}
	if c.role = has; c.tcp {
		c.Remote = fmt.Sprintf("%s (%s)", c.Remote, has)
	}
	ctx = context.WithValue(ctx, callerKey{}, c)
	switch {
	case has != "" && role != "" && (has == operator || has == role):
		return ctx, nil
	case c.tcp:
		return ctx, control.Errorf(control.CodeDenied, "the token has the role %s, and the operation needs %s: use the token of [api] operate_token", has, role)
	default:
		return ctx, control.Errorf(control.CodeDenied, "user %d may not control this daemon; root may, and members of control_group", c.UID)
	}
}

// roleOf returns the role of a caller; empty: none. Over TCP the token counts; over the control socket root, the
// daemon's own user and the control group may operate.
func (s *Server) roleOf(c caller, header string) (string, error) {
	if c.tcp {
		return s.roleOfToken(header)
	}
	if c.UID == 0 || c.UID == os.Geteuid() {
		return operator, nil
	}
	if group := s.opt.Config.Daemon.ControlGroup; group != "" { // as for the socket, the group configured at the start counts
		if gid, err := groupID(group); err == nil && c.Member(gid) {
			return operator, nil
		}
	}
	return "", nil
}

// roleOfToken returns the role of the token in an Authorization header. It reads the files of the tokens each time, so
// that a new token holds at once. A token that is in both files gives the lesser role.
func (s *Server) roleOfToken(header string) (string, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", control.Errorf(control.CodeUnauthenticated, "no token: send the header `Authorization: Bearer TOKEN` with the content of [api] view_token or operate_token")
	}
	for _, f := range []struct{ path, role string }{{s.opt.Config.API.ViewToken, viewer}, {s.opt.Config.API.OperateToken, operator}} {
		if f.path == "" {
			continue
		}
		want, err := readToken(f.path)
		if err != nil {
			s.opt.Log.Warn("the API's token can't be read; it admits no caller", "err", err)
			continue
		}
		a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
			return f.role, nil
		}
	}
	return "", control.Errorf(control.CodeUnauthenticated, "the token is wrong")
}

// readToken returns the token of a file that only its owner and group may read.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("%s has the mode %#o: a token must not be readable for every user; chmod o= it", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if len(token) < shortestToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: a token has at least %d printable characters of ASCII, such as from `openssl rand -hex 32`", path, shortestToken)
	}
	return token, nil
}

// checkTCP returns an error if the certificate or a token of the configuration can't be used.
func (s *Server) checkTCP() error {
	if a := s.opt.Config.API; a.Certificate != "" {
		if _, err := tls.LoadX509KeyPair(a.Certificate, a.Key); err != nil {
			return fmt.Errorf("[api] certificate and key: %w", err)
		}
	}
	seen := map[string]string{} // keys by token
	for _, f := range []struct{ key, path string }{{"view_token", s.opt.Config.API.ViewToken}, {"operate_token", s.opt.Config.API.OperateToken}} {
		if f.path == "" {
			continue
		}
		token, err := readToken(f.path)
		if err != nil {
			return fmt.Errorf("[api] %s: %w", f.key, err)
		}
		if other := seen[token]; other != "" {
			return fmt.Errorf("[api] %s: %s has the token of %s: the tokens of two roles must differ", f.key, f.path, other)
		}
		seen[token] = f.key
	}
	return nil
}

// guard is the middleware that refuses callers without the role of the operation.
func (s *Server) guard(ctx huma.Context, next func(huma.Context)) {
	role, _ := ctx.Operation().Metadata["role"].(string)
	allowed, err := s.authorize(ctx.Context(), ctx.Header("Authorization"), role)
	if err != nil {
		refuse(writerOf(ctx), asProblem(err))
		return
	}
	next(huma.WithContext(ctx, allowed))
}

// guarded is guard for a handler that is no operation.
func (s *Server) guarded(role string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed, err := s.authorize(r.Context(), r.Header.Get("Authorization"), role)
		if err != nil {
			refuse(w, asProblem(err))
			return
		}
		h.ServeHTTP(w, r.WithContext(allowed))
	})
}

// onHost returns an error for an operation over TCP that needs a process of this host.
func onHost(p control.Peer) error {
	if p.Remote != "" {
		return control.Errorf(control.CodeDenied, "the operation is for a process of the daemon's host, over its control socket")
	}
	return nil
}

// needsHolder returns an error for a lease without a holder of a caller that has no user here.
func needsHolder(p control.Peer, domain, holder string) error {
	if p.Remote != "" && holder == "" {
		return control.Errorf(control.CodeInvalid, "domain %q: the lease needs a holder, as the caller has no user here", domain)
	}
	return nil
}
