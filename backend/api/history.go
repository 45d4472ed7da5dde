package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
)

// addFits adds the operation that answers whether another domain would fit.
func (s *Server) addFits(api huma.API) {
	type question struct{ Body control.FitParams }
	register(api, operation(viewer, http.MethodPost, "/v1/fits", "check-fit", "Check whether a domain would fit",
		"Whether a domain with these settings would fit on each accelerator that it may be on, and its effect on the domains there. It changes nothing. With predict, the policy is simulated with the measured demand; one such request is answered at a time."),
		func(_ context.Context, _ control.Peer, in *question) ([]control.Fit, error) {
			return s.guests.Fits(in.Body)
		})
}

// addHistory adds the operation that returns samples.
func (s *Server) addHistory(api huma.API) {
	type query struct {
		Domain string `query:"domain" doc:"Name of the domain; empty: all"`
	}
	register(api, operation(viewer, http.MethodGet, "/v1/history", "show-history", "Show the latest samples",
		"Samples of domains: share, waits, calls and memory over each interval of the last ten minutes. A domain that was on no accelerator in that time has none."),
		func(_ context.Context, _ control.Peer, in *query) (control.History, error) {
			if in.Domain != "" {
				if _, err := s.guests.Domains(control.DomainParams{Domain: in.Domain}); err != nil {
					return control.History{}, err
				}
			}
			return s.opt.History.Get(in.Domain), nil
		})
}
