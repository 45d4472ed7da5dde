package xenstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"pegasus/xenstore/wire"
)

// DomainPath returns a domain's directory, to which its relative paths refer. The domain need not exist.
func (c *Client) DomainPath(ctx context.Context, dom DomID) (string, error) {
	body, err := c.about(ctx, wire.GetDomainPath, dom)
	return wire.Text(body), err
}

// IsIntroduced reports whether the server serves a domain.
func (c *Client) IsIntroduced(ctx context.Context, dom DomID) (bool, error) {
	body, err := c.about(ctx, wire.IsDomainIntroduced, dom)
	if err != nil {
		return false, err
	}
	switch answer := wire.Text(body); answer {
	case "T":
		return true, nil
	case "F":
		return false, nil
	default:
		return false, &Error{wire.IsDomainIntroduced, dom.String(), fmt.Errorf("an answer of %q", answer)}
	}
}

// Introduce makes the server serve a domain: over the page at frame gfn of the domain, with notifications at its
// event channel port. Only domain 0 may call it and the four methods that follow.
func (c *Client) Introduce(ctx context.Context, dom DomID, gfn int64, port uint32) error {
	_, err := c.send(ctx, wire.Introduce, dom.String(),
		wire.Join(dom.String(), strconv.FormatInt(gfn, 10), strconv.FormatUint(uint64(port), 10)))
	return err
}

// Release makes the server stop serving a domain, and removes the nodes that the domain owns.
func (c *Client) Release(ctx context.Context, dom DomID) error {
	_, err := c.about(ctx, wire.Release, dom)
	return err
}

// Resume makes the server notice the next shutdown of a domain that had shut down and was resumed.
func (c *Client) Resume(ctx context.Context, dom DomID) error {
	_, err := c.about(ctx, wire.Resume, dom)
	return err
}

// SetTarget gives a domain the permissions of another one: of a device model for its guest.
func (c *Client) SetTarget(ctx context.Context, dom, target DomID) error {
	_, err := c.send(ctx, wire.SetTarget, dom.String(), wire.Join(dom.String(), target.String()))
	return err
}

// Control sends the server a command of its own, such as "help" or "check". The commands differ between servers and
// their versions.
func (c *Client) Control(ctx context.Context, command string, args ...string) (string, error) {
	body, err := c.words(ctx, wire.Control, append([]string{command}, args...)...)
	return wire.Text(body), err
}

// A server's features, as bits of Features.
const (
	FeatureReconnect  = 1 << iota // a domain can reconnect on its ring
	FeatureError                  // it reports on the ring why it stopped serving
	FeatureWatchDepth             // WatchDepth
)

// Features returns the server's features for this domain, as bits (Xen 4.22).
func (c *Client) Features(ctx context.Context) (uint32, error) {
	return c.number(ctx, wire.GetFeature)
}

// FeaturesOf returns the features that the server shows another domain.
func (c *Client) FeaturesOf(ctx context.Context, dom DomID) (uint32, error) {
	return c.number(ctx, wire.GetFeature, dom.String())
}

// SetFeatures sets the features that the server shows a domain, before it is introduced.
func (c *Client) SetFeatures(ctx context.Context, dom DomID, bits uint32) error {
	_, err := c.words(ctx, wire.SetFeature, dom.String(), strconv.FormatUint(uint64(bits), 10))
	return err
}

// Quotas returns the names of the server's limits (Xen 4.22).
func (c *Client) Quotas(ctx context.Context) ([]string, error) {
	body, err := c.words(ctx, wire.GetQuota)
	return strings.Fields(wire.Text(body)), err
}

// Quota returns a limit of new domains; 0: no limit.
func (c *Client) Quota(ctx context.Context, name string) (uint32, error) {
	return c.number(ctx, wire.GetQuota, name)
}

// QuotaOf returns a limit of a domain.
func (c *Client) QuotaOf(ctx context.Context, dom DomID, name string) (uint32, error) {
	return c.number(ctx, wire.GetQuota, dom.String(), name)
}

// SetQuota changes a limit of new domains.
func (c *Client) SetQuota(ctx context.Context, name string, value uint32) error {
	_, err := c.words(ctx, wire.SetQuota, name, strconv.FormatUint(uint64(value), 10))
	return err
}

// SetQuotaOf changes a limit of a domain.
func (c *Client) SetQuotaOf(ctx context.Context, dom DomID, name string, value uint32) error {
	_, err := c.words(ctx, wire.SetQuota, dom.String(), name, strconv.FormatUint(uint64(value), 10))
	return err
}

// about sends a request with a domain as its body.
func (c *Client) about(ctx context.Context, op wire.Type, dom DomID) ([]byte, error) {
	return c.send(ctx, op, dom.String(), wire.Join(dom.String()))
}

// words sends a request with words as its body.
func (c *Client) words(ctx context.Context, op wire.Type, words ...string) ([]byte, error) {
	for _, w := range words {
		if strings.Contains(w, "\x00") {
			return nil, invalid(op, w, fmt.Errorf("a word with a NUL"))
		}
	}
	return c.send(ctx, op, strings.Join(words, " "), wire.Join(words...))
}

// number sends words and returns the number in the answer.
func (c *Client) number(ctx context.Context, op wire.Type, words ...string) (uint32, error) {
	body, err := c.words(ctx, op, words...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(wire.Text(body), 10, 32)
	if err != nil {
		return 0, &Error{op, strings.Join(words, " "), fmt.Errorf("an answer of %q: %w", body, syscall.EIO)}
	}
	return uint32(n), nil
}
