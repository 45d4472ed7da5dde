package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"pegasus/cluster/claims"
)

// Mover evicts the pods of claims that are to move. It checks each pod anew before its eviction, and evicts within
// disruption budgets.
type Mover struct {
	Client kubernetes.Interface
	Log    func(format string, args ...any)
	// Patience bounds the wait until the pods of one move run at another place. Every is the time between two looks.
	Patience, Every time.Duration
}

// movingTaint is the key of the taint that keeps the scheduler from placing a pod on the accelerator that it leaves.
const movingTaint = claims.DriverName + "/moving"

// Apply makes the moves of an advice that are permitted, one after the other, and returns how many it made. It stops at
// the first error.
func (m *Mover) Apply(ctx context.Context, a *Advice) (done int, err error) {
	for i := range a.Moves {
		if a.Moves[i].Why != "" {
			continue
		}
		if err := m.move(ctx, &a.Moves[i]); err != nil {
			return done, fmt.Errorf("move %s/%s: %w", a.Moves[i].Namespace, a.Moves[i].Claim, err)
		}
		done++
	}
	return done, nil
}

// move evicts the pods of a claim, while a taint keeps new claims from the accelerator.
func (m *Mover) move(ctx context.Context, move *Move) error {
	var pods []*corev1.Pod
	for _, name := range move.Pods {
		p, err := m.Client.CoreV1().Pods(move.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			err = movable(p)
		}
		if err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
		pods = append(pods, p)
	}
	all, err := m.Client.CoreV1().Pods(move.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	before := map[types.UID]bool{}
	for i := range all.Items {
		before[all.Items[i].UID] = true
	}
	untaint, err := m.taint(ctx, move)
	if err != nil {
		return err
	}
	defer untaint()
	for _, p := range pods {
		err := m.Client.CoreV1().Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(p.UID)}}})
		if apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("pod %s: its disruption budget permits no eviction now: %w", p.Name, err)
		}
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		m.Log("evicted pod %s/%s", p.Namespace, p.Name)
	}
	return m.wait(ctx, move, pods, before)
}

// taint taints the accelerator of a claim for the scheduler, and returns the function that ends it.
func (m *Mover) taint(ctx context.Context, move *Move) (untaint func(), err error) {
	rules := m.Client.ResourceV1().DeviceTaintRules()
	rule, err := rules.Create(ctx, &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pegasus-moving-"},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: ptr.To(claims.DriverName), Pool: ptr.To(move.From.Node), Device: ptr.To(move.From.Accelerator)},
			Taint:          resourceapi.DeviceTaint{Key: movingTaint, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		m.Log("the cluster has no DeviceTaintRule of resource.k8s.io/v1 (Kubernetes 1.37): the scheduler may place the pod at %s again", move.From)
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("taint %s: %w", move.From, err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := rules.Delete(ctx, rule.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			m.Log("taint of %s stays: %v; end it by `kubectl delete devicetaintrule %s`", move.From, err, rule.Name)
		}
	}, nil
}

// wait blocks until the pods are gone, the controllers have made as many others that are not in before, and the
// scheduler has placed these.
func (m *Mover) wait(ctx context.Context, move *Move, pods []*corev1.Pod, before map[types.UID]bool) error {
	ctx, cancel := context.WithTimeout(ctx, m.Patience)
	defer cancel()
	gone, missing := map[types.UID]bool{}, map[types.UID]int{} // by controller
	for _, p := range pods {
		gone[p.UID] = true
		missing[metav1.GetControllerOf(p).UID]++
	}
	for {
		all, err := m.Client.CoreV1().Pods(move.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && replaced(all.Items, gone, before, missing) {
			m.Log("the pods of %s/%s are placed anew", move.Namespace, move.Claim)
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("its pods are evicted, and not all of their successors were placed within %v; `kubectl -n %s get pods` shows them", m.Patience, move.Namespace)
			}
			return ctx.Err()
		case <-time.After(m.Every):
		}
	}
}

// replaced reports whether no pod of gone is left, and each controller has as many new placed pods as are missing.
func replaced(all []corev1.Pod, gone, before map[types.UID]bool, missing map[types.UID]int) bool {
	placed := map[types.UID]int{}
	for i := range all {
		p := &all[i]
		if gone[p.UID] {
			return false
		}
		if owner := metav1.GetControllerOf(p); owner != nil && p.Spec.NodeName != "" && !before[p.UID] {
			placed[owner.UID]++
		}
	}
	for owner, n := range missing {
		if placed[owner] < n {
			return false
		}
	}
	return true
}
