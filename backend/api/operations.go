package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
)

// answer is the body of an operation's answer.
type answer[T any] struct{ Body T }

// Parameters of operations in the path and the query. Huma finds those of embedded types only if these are exported.
type (
	none     struct{}
	OfDomain struct {
		Domain string `path:"domain" doc:"Name of the domain"`
	}
	OfLease struct {
		OfDomain
		Holder string `query:"holder" doc:"Holder of the lease; empty: the caller's user, as uid-0"`
	}
	OfRemoval struct {
		OfDomain
		Mode string `query:"mode" enum:"refuse,wait,end" default:"refuse" doc:"For a domain in use: refuse; wait until the last process has gone; or end its workers, and wait"`
	}
	OfAccelerator struct {
		Accelerator string `query:"accelerator" doc:"Name of the accelerator; empty: all, or the only one"`
	}
)

// operation returns the description of an operation.
func operation(role, method, path, id, summary, description string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Description: description,
		Security:     []map[string][]string{{"token": {role}}},
		Metadata:     map[string]any{"role": role},
		MaxBodyBytes: control.MaxRequest,
		Errors:       control.Statuses(),
	}
}

// register adds an operation with one answer.
func register[I, O any](api huma.API, op huma.Operation, do func(ctx context.Context, by control.Peer, in *I) (O, error)) {
	huma.Register(api, op, func(ctx context.Context, in *I) (*answer[O], error) {
		v, err := do(ctx, peerOf(ctx), in)
		if err != nil {
			return nil, asProblem(err)
		}
		return &answer[O]{v}, nil
	})
}

// registerEmpty adds an operation with an empty answer.
func registerEmpty[I any](api huma.API, op huma.Operation, do func(ctx context.Context, by control.Peer, in *I) error) {
	op.DefaultStatus = http.StatusNoContent
	huma.Register(api, op, func(ctx context.Context, in *I) (*struct{}, error) {
		if err := do(ctx, peerOf(ctx), in); err != nil {
			return nil, asProblem(err)
		}
		return nil, nil
	})
}

// addOperations adds all operations to the API.
func (s *Server) addOperations(api huma.API) {
	s.addViews(api)
	s.addHistory(api)
	s.addFits(api)
	s.addStreams(api)
	s.addSettings(api)
	s.addDomains(api)
}

func (s *Server) addViews(api huma.API) {
	g := s.guests
	register(api, operation(viewer, http.MethodGet, "/v1/status", "status", "Show the daemon", "The state of the daemon and of its host."),
		func(context.Context, control.Peer, *none) (control.Status, error) { return g.Status(), nil })
	register(api, operation(viewer, http.MethodGet, "/v1/domains", "list-domains", "List the domains", "All domains, with their shares and their use."),
		func(context.Context, control.Peer, *none) ([]control.Domain, error) {
			return g.Domains(control.DomainParams{})
		})
	register(api, operation(viewer, http.MethodGet, "/v1/domains/{domain}", "show-domain", "Show a domain", "One domain, with its share, its use and its settings."),
		func(_ context.Context, _ control.Peer, in *OfDomain) (d control.Domain, err error) {
			all, err := g.Domains(control.DomainParams{Domain: in.Domain})
			if err == nil {
				d = all[0]
			}
			return d, err
		})
	register(api, operation(viewer, http.MethodGet, "/v1/explanations", "explain-domains", "Explain all domains", "The reasons why each domain runs or does not run now."),
		func(context.Context, control.Peer, *none) ([]control.Explanation, error) {
			return s.explain(control.DomainParams{})
		})
	register(api, operation(viewer, http.MethodGet, "/v1/domains/{domain}/explanation", "explain-domain", "Explain a domain", "The reasons why the domain runs or does not run now."),
		func(_ context.Context, _ control.Peer, in *OfDomain) (e control.Explanation, err error) {
			all, err := s.explain(control.DomainParams{Domain: in.Domain})
			if err == nil {
				e = all[0]
			}
			return e, err
		})
	register(api, operation(viewer, http.MethodGet, "/v1/config", "show-config", "Show the configuration",
		"All settings in force with their origins, and what a reload would change. Created domains have theirs in show-domain."),
		func(context.Context, control.Peer, *none) (control.Config, error) { return g.Config(), nil })
	register(api, operation(viewer, http.MethodGet, "/v1/log", "show-log", "Show the level of the log", "The level of the daemon's log, with its origin."),
		func(context.Context, control.Peer, *none) (control.Log, error) { return g.Log(), nil })
	register(api, operation(viewer, http.MethodGet, "/v1/accelerators", "list-accelerators", "List the accelerators", "All accelerators, with their policies and load."),
		func(context.Context, control.Peer, *none) ([]control.Accelerator, error) {
			return g.Accelerators(), nil
		})
}

func (s *Server) addSettings(api huma.API) {
	g := s.guests
	type policy struct {
		OfAccelerator
		Body control.PolicyParams
	}
	register(api, operation(operator, http.MethodPatch, "/v1/accelerators", "switch-policy", "Switch the policy",
		"Switches the policy, the mode, or both, of one accelerator or of all. Running programs continue with new shares."),
		func(_ context.Context, by control.Peer, in *policy) ([]control.Accelerator, error) {
			q := in.Body
			q.Accelerator = in.Accelerator
			return g.SwitchPolicy(by, q)
		})
	register(api, operation(operator, http.MethodPost, "/v1/reload", "reload", "Read the configuration again",
		"Applies the changes of the configuration file. A file with errors changes nothing."),
		func(_ context.Context, by control.Peer, _ *none) (control.ReloadResult, error) {
			return s.opt.Reload(&by)
		})
	type level struct{ Body control.LogParams }
	register(api, operation(operator, http.MethodPut, "/v1/log", "set-log", "Change the level of the log",
		"Changes the level of the daemon's log and of its workers' at once, until the configuration has another level."),
		func(_ context.Context, by control.Peer, in *level) (control.Log, error) { return g.SetLog(by, in.Body) })
	type shutdown struct {
		IfIdle bool `query:"if_idle" doc:"Only if no guest and no program uses the daemon"`
	}
	registerEmpty(api, operation(operator, http.MethodPost, "/v1/shutdown", "shutdown", "End the daemon",
		"Guests of the host's daemon continue, and the next daemon adopts them. Guests of a private daemon get errors."),
		func(_ context.Context, by control.Peer, in *shutdown) error {
			_, err := g.Shutdown(by, control.ShutdownParams{IfIdle: in.IfIdle})
			return err
		})
}

func (s *Server) addDomains(api huma.API) {
	g := s.guests
	type creation struct{ Body control.CreateParams }
	register(api, operation(operator, http.MethodPost, "/v1/domains", "create-domain", "Create a domain",
		"Creates a domain with a lease for the holder, or adds the lease to a domain that was created with the same settings."),
		func(_ context.Context, by control.Peer, in *creation) (control.Domain, error) {
			if err := needsHolder(by, in.Body.Domain, in.Body.Holder); err != nil {
				return control.Domain{}, err
			}
			return g.Create(by, in.Body)
		})
	type change struct {
		OfDomain
		Body control.SetParams
	}
	register(api, operation(operator, http.MethodPatch, "/v1/domains/{domain}", "set", "Change settings of a domain",
		"Changes settings, which are spelled as in the configuration."),
		func(_ context.Context, by control.Peer, in *change) (control.Domain, error) {
			return g.Set(by, control.SetParams{Domain: in.Domain, Settings: in.Body.Settings})
		})
	registerEmpty(api, operation(operator, http.MethodDelete, "/v1/domains/{domain}", "remove-domain", "Remove a domain",
		"Removes a domain that the configuration does not declare. With the modes wait and end the answer comes when the domain has gone."),
		func(ctx context.Context, by control.Peer, in *OfRemoval) error {
			return g.Remove(ctx, by, control.RemoveParams{Domain: in.Domain, Mode: in.Mode})
		})
	type term struct {
		OfLease
		Body control.LeaseParams
	}
	register(api, operation(operator, http.MethodPut, "/v1/domains/{domain}/lease", "renew-lease", "Renew a lease", "Gives a lease a new term."),
		func(_ context.Context, by control.Peer, in *term) (control.Domain, error) {
			if err := needsHolder(by, in.Domain, in.Holder); err != nil {
				return control.Domain{}, err
			}
			return g.Renew(by, control.LeaseParams{Domain: in.Domain, Holder: in.Holder, Expires: in.Body.Expires})
		})
	registerEmpty(api, operation(operator, http.MethodDelete, "/v1/domains/{domain}/lease", "release-lease", "Release a lease",
		"Ends a lease. The domain ends with its last lease when no process is in it."),
		func(_ context.Context, by control.Peer, in *OfLease) error {
			if err := needsHolder(by, in.Domain, in.Holder); err != nil {
				return err
			}
			return g.Release(by, control.LeaseParams{Domain: in.Domain, Holder: in.Holder})
		})
	type hold struct {
		OfDomain
		Body control.HoldParams
	}
	register(api, operation(operator, http.MethodPost, "/v1/domains/{domain}/hold", "hold-domain", "Hold a domain for a process",
		"Keeps the domain for as long as the calling process runs, and creates it if it does not exist. Only over the control socket."),
		func(_ context.Context, by control.Peer, in *hold) (control.HoldResult, error) {
			if err := onHost(by); err != nil {
				return control.HoldResult{}, err
			}
			return g.Hold(by, control.HoldParams{Domain: in.Domain, Credits: in.Body.Credits})
		})
}
