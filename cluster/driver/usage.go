package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/cluster/claims"
	"pegasus/cluster/parameters"
)

// Usage is the content of status.devices[].data of a claim: the latest usage of its domain that differed from the one
// before.
type Usage struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	At         metav1.Time `json:"at"`
	Domain     string      `json:"domain"`
	Credits    int         `json:"credits"`
	Entitled   float64     `json:"entitled"` // part of the accelerator, 0 to 1
	Share      float64     `json:"share"`    // part of its used time, 0 to 1
	Waiting    float64     `json:"waiting"`  // part of the recent time that it waited for its turn
	Memory     uint64      `json:"memoryBytes"`
	Processes  int         `json:"processes"`
}

// UsageKind is the kind of a Usage.
const UsageKind = "DomainUsage"

func usageOf(d *control.Domain, now time.Time) Usage {
	part := func(f float64) float64 { return math.Round(1000*f) / 1000 }
	return Usage{APIVersion: parameters.APIVersion, Kind: UsageKind, At: metav1.NewTime(now.Truncate(time.Second)), Domain: d.Name, Credits: d.Credits,
		Entitled: part(d.Entitled), Share: part(d.Share), Waiting: part(d.Spent.Turn), Memory: d.Memory, Processes: d.Processes}
}

// Limits of reports.
const (
	leastChange = 0.05 // of a part, or of the domain's quota of memory
	mostWrites  = 5    // of one look at the daemon
)

// differs reports whether two usages of a domain differ by enough for a write.
func (u *Usage) differs(o *Usage, quota uint64) bool {
	far := func(a, b float64) bool { return math.Abs(a-b) > leastChange }
	return u.Credits != o.Credits || (u.Processes == 0) != (o.Processes == 0) || far(u.Entitled, o.Entitled) || far(u.Share, o.Share) || far(u.Waiting, o.Waiting) ||
		quota > 0 && far(float64(u.Memory)/float64(quota), float64(o.Memory)/float64(quota))
}

// Reporter writes the usage of prepared claims to their status. A claim is written when its usage has changed, at most
// once in a time; each write replaces the one before, so that no object grows.
type Reporter struct {
	Driver *Driver
	Client kubernetes.Interface
	Least  time.Duration // between two writes of a claim
	Every  time.Duration // between two looks at the daemon

	wrote map[types.UID]written
	noted string // text of the latest error
}

// written is the last attempt to write a claim's usage.
type written struct {
	at    time.Time
	usage Usage
}

// Run writes until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text := ""
		if err := r.step(ctx, time.Now()); err != nil {
			text = err.Error()
		}
		if text != r.noted && text != "" {
			r.Driver.log.Warn("report usage", "err", text)
		}
		r.noted = text
	}
}

// due is a claim whose usage is to be written.
type due struct {
	of    *claims.Domain
	usage Usage
	last  time.Time
}

// step looks at the daemon once, and writes the claims that are due.
func (r *Reporter) step(ctx context.Context, now time.Time) error {
	domains, err := r.Driver.daemon.domains(ctx)
	if err != nil {
		return nil // the watcher reports it
	}
	all, err := r.Driver.records.All() // those that can be read
	if err != nil && len(all) == 0 {
		return err
	}
	return r.report(ctx, now, domains, all)
}

// report writes at most mostWrites of the claims that are due, those first that have waited for longest.
func (r *Reporter) report(ctx context.Context, now time.Time, domains []control.Domain, all []*claims.Domain) error {
	var list []due
	kept := map[types.UID]written{}
	for _, of := range all {
		last, has := r.wrote[of.UID]
		if has {
			kept[of.UID] = last
		}
		i := slices.IndexFunc(domains, func(d control.Domain) bool { return d.Name == of.Name() })
		if i < 0 || has && now.Sub(last.at) < r.Least {
			continue
		}
		u := usageOf(&domains[i], now)
		if !has || u.differs(&last.usage, domains[i].MemoryQuota) {
			list = append(list, due{of, u, last.at})
		}
	}
	r.wrote = kept // without the claims that are gone
	slices.SortFunc(list, func(a, b due) int { return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.of.UID, b.of.UID)) })
	var failed error
	for _, d := range list[:min(len(list), mostWrites)] {
		err := r.write(ctx, d.of, &d.usage)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // else the claim is gone, or another of its name is there
			failed = cmp.Or(failed, fmt.Errorf("claim %s: %w", d.of, err))
		}
		r.wrote[d.of.UID] = written{now, d.usage} // after an error, too: the next attempt is as far away
	}
	return failed
}

// write writes the status of a claim, unless it has been replaced by another of its name.
func (r *Reporter) write(ctx context.Context, of *claims.Domain, u *Usage) error {
	text, err := json.Marshal(u)
	if err != nil {
		return err
	}
	device := resourceapply.AllocatedDeviceStatus().WithDriver(claims.DriverName).WithPool(of.Pool).WithDevice(of.Device).WithData(runtime.RawExtension{Raw: text})
	if of.Share != nil {
		device.WithShareID(string(*of.Share))
	}
	claim := resourceapply.ResourceClaim(of.Claim, of.Namespace).WithUID(of.UID).WithStatus(resourceapply.ResourceClaimStatus().WithDevices(device))
	_, err = r.Client.ResourceV1().ResourceClaims(of.Namespace).ApplyStatus(ctx, claim, metav1.ApplyOptions{FieldManager: claims.DriverName, Force: true})
	return err
}

// UsageIn returns the usage in a claim's status, or nil.
func UsageIn(c *resourceapi.ResourceClaim) *Usage {
	for _, d := range c.Status.Devices {
		var u Usage
		if d.Driver == claims.DriverName && d.Data != nil && json.Unmarshal(d.Data.Raw, &u) == nil && u.Kind == UsageKind {
			return &u
		}
	}
	return nil
}

// domains returns the daemon's domains.
func (d daemon) domains(ctx context.Context) (all []control.Domain, err error) {
	err = d.do(func(c *client.Client) error {
		all, err = c.Domains(ctx)
		return err
	})
	return all, err
}
