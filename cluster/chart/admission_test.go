package chart

import (
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// evaluate evaluates an expression of the policy in the environment of an API server.
func evaluate(t *testing.T, expression string, input map[string]any) any {
	t.Helper()
	return evaluated(t, expression, input).Value()
}

// evaluated is evaluate with a value of CEL.
func evaluated(t *testing.T, expression string, input map[string]any) ref.Val {
	t.Helper()
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 30),
		EnvOptions: []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
			cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType), common.ResolverEnvOption(new(mutation.DynamicTypeResolver))},
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := program.Eval(input)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// account is the driver's service account.
const account = "system:serviceaccount:pegasus-system:pegasus"

// admits returns whether a policy admits a change by a user whose token is of a pod of a node; "": of none.
func admits(t *testing.T, p *admission.ValidatingAdmissionPolicy, name, node string, object, old any) bool {
	t.Helper()
	user := map[string]any{"username": name}
	if node != "" {
		user["extra"] = map[string]any{"authentication.kubernetes.io/node-name": []any{node}}
	}
	input := map[string]any{"object": object, "oldObject": old, "request": map[string]any{"userInfo": user}, "variables": map[string]any{}}
	for _, c := range p.Spec.MatchConditions {
		if evaluate(t, c.Expression, input) != true {
			return true
		}
	}
	variables := map[string]any{}
	for _, v := range p.Spec.Variables {
		input["variables"] = variables
		variables[v.Name] = evaluate(t, v.Expression, input)
	}
	input["variables"] = variables
	got := true
	for _, v := range p.Spec.Validations {
		got = got && evaluate(t, v.Expression, input) == true
		if v.MessageExpression != "" {
			evaluate(t, v.MessageExpression, input)
		}
	}
	return got
}

// The driver of a node writes the slices of its node and driver only; the policy is for this service account alone.
func TestAdmission(t *testing.T) {
	p := policy(t, image(), "pegasus-slices")
	slice := func(node, driver string) map[string]any {
		return map[string]any{"spec": map[string]any{"nodeName": node, "driver": driver}}
	}
	for _, c := range []struct {
		about       string
		user, node  string
		object, old any
		want        bool
	}{
		{"creates its own", account, "node1", slice("node1", "pegasus.dev"), nil, true},
		{"changes its own", account, "node1", slice("node1", "pegasus.dev"), slice("node1", "pegasus.dev"), true},
		{"deletes its own", account, "node1", nil, slice("node1", "pegasus.dev"), true},
		{"creates another node's", account, "node1", slice("node2", "pegasus.dev"), nil, false},
		{"takes another node's", account, "node1", slice("node1", "pegasus.dev"), slice("node2", "pegasus.dev"), false},
		{"deletes another node's", account, "node1", nil, slice("node2", "pegasus.dev"), false},
		{"creates one of all nodes", account, "node1", map[string]any{"spec": map[string]any{"driver": "pegasus.dev", "allNodes": true}}, nil, false},
		{"creates another driver's", account, "node1", slice("node1", "gpu.nvidia.com"), nil, false},
		{"has a token without a node", account, "", slice("node1", "pegasus.dev"), nil, false},
		{"another driver creates one", "system:serviceaccount:other:other", "node1", slice("node2", "gpu.nvidia.com"), nil, true},
	} {
		if got := admits(t, p, c.user, c.node, c.object, c.old); got != c.want {
			t.Errorf("the driver %s: admitted %v, want %v", c.about, got, c.want)
		}
	}
}

// The driver of a node writes the status of its own devices on the node, and nothing else of a claim.
func TestUsageAdmission(t *testing.T) {
	values := image()
	values["usage"] = map[string]any{"enabled": true}
	p := policy(t, values, "pegasus-usage")
	type devices = []any
	device := func(driver, node, data string) map[string]any {
		return map[string]any{"driver": driver, "pool": node, "device": "soft0", "data": map[string]any{"share": data}}
	}
	claim := func(on string, all devices) map[string]any {
		status := map[string]any{"allocation": map[string]any{"devices": on}, "reservedFor": []any{map[string]any{"name": "web-0"}}}
		if all != nil {
			status["devices"] = all
		}
		return map[string]any{"spec": map[string]any{}, "status": status}
	}
	mine, other, far := device("pegasus.dev", "node1", "1"), device("nic.example.com", "node1", "1"), device("pegasus.dev", "node2", "1")
	bare := map[string]any{"spec": map[string]any{}, "status": map[string]any{}}
	for _, c := range []struct {
		about       string
		user, node  string
		object, old any
		want        bool
	}{
		{"adds its own", account, "node1", claim("soft0", devices{mine}), claim("soft0", nil), true},
		{"changes its own beside others", account, "node1", claim("soft0", devices{other, mine, far}), claim("soft0", devices{other, device("pegasus.dev", "node1", "0"), far}), true},
		{"removes its own", account, "node1", claim("soft0", nil), claim("soft0", devices{mine}), true},
		{"changes another driver's", account, "node1", claim("soft0", devices{device("nic.example.com", "node1", "2")}), claim("soft0", devices{other}), false},
		{"removes another driver's", account, "node1", claim("soft0", devices{mine}), claim("soft0", devices{mine, other}), false},
		{"writes another node's", account, "node1", claim("soft0", devices{far}), claim("soft0", nil), false},
		{"changes the allocation", account, "node1", claim("soft1", devices{mine}), claim("soft0", devices{mine}), false},
		{"allocates", account, "node1", claim("soft0", devices{mine}), bare, false},
		{"frees", account, "node1", bare, claim("soft0", nil), false},
		{"has a token without a node", account, "", claim("soft0", devices{mine}), claim("soft0", nil), false},
		{"the scheduler allocates", "system:kube-scheduler", "", claim("soft0", nil), bare, true},
	} {
		if got := admits(t, p, c.user, c.node, c.object, c.old); got != c.want {
			t.Errorf("the driver %s: admitted %v, want %v", c.about, got, c.want)
		}
	}
}

// Claims and templates request at most what the class permits, in each of the alternatives; other classes are free.
func TestClassLimits(t *testing.T) {
	values := image()
	values["deviceClass"] = map[string]any{"maxCredits": 512}
	values["classes"] = []any{map[string]any{"name": "small.pegasus.dev", "maxCredits": 256, "maxMemory": "1Gi"}, map[string]any{"name": "free.pegasus.dev"}}
	p := policy(t, values, "pegasus-classes")
	request := func(class, credits, memory string) map[string]any {
		requests := map[string]any{}
		if credits != "" {
			requests["credits"] = credits
		}
		if memory != "" {
			requests["memory"] = memory
		}
		return map[string]any{"name": "gpu", "deviceClassName": class, "capacity": map[string]any{"requests": requests}}
	}
	claim := func(all ...any) map[string]any {
		return map[string]any{"spec": map[string]any{"devices": map[string]any{"requests": all}}}
	}
	exactly := func(r map[string]any) any { return map[string]any{"name": "gpu", "exactly": r} }
	for _, c := range []struct {
		about  string
		object any
		want   bool
	}{
		{"as much as permitted", claim(exactly(request("small.pegasus.dev", "256", "1Gi"))), true},
		{"the default", claim(exactly(map[string]any{"deviceClassName": "small.pegasus.dev"})), true},
		{"the default memory", claim(exactly(request("small.pegasus.dev", "1", ""))), true},
		{"too many credits", claim(exactly(request("small.pegasus.dev", "257", ""))), false},
		{"too many in another spelling", claim(exactly(request("small.pegasus.dev", "1k", ""))), false},
		{"too much memory", claim(exactly(request("small.pegasus.dev", "1", "1025Mi"))), false},
		{"more of the other class", claim(exactly(request("pegasus.dev", "512", "100Gi"))), true},
		{"too many of the other class", claim(exactly(request("pegasus.dev", "513", ""))), false},
		{"of a class without limits", claim(exactly(request("free.pegasus.dev", "1024", "100Gi"))), true},
		{"of another driver", claim(exactly(request("gpu.example.com", "1024", ""))), true},
		{"the second of two", claim(exactly(request("small.pegasus.dev", "1", "")), exactly(request("small.pegasus.dev", "1024", ""))), false},
		{"an alternative", claim(map[string]any{"name": "gpu", "firstAvailable": []any{request("small.pegasus.dev", "1", ""), request("small.pegasus.dev", "512", "")}}), false},
		{"a template", map[string]any{"spec": map[string]any{"metadata": map[string]any{}, "spec": claim(exactly(request("small.pegasus.dev", "512", "")))["spec"]}}, false},
		{"a modest template", map[string]any{"spec": map[string]any{"spec": claim(exactly(request("small.pegasus.dev", "256", "")))["spec"]}}, true},
		{"no devices", map[string]any{"spec": map[string]any{}}, true},
	} {
		if got := admits(t, p, "any", "", c.object, nil); got != c.want {
			t.Errorf("%s: admitted %v, want %v", c.about, got, c.want)
		}
	}
	input := map[string]any{"object": claim(exactly(request("small.pegasus.dev", "300", "2Gi"))), "variables": map[string]any{}}
	variables := map[string]any{}
	for _, v := range p.Spec.Variables {
		input["variables"] = variables
		variables[v.Name] = evaluate(t, v.Expression, input)
	}
	input["variables"] = variables
	want := "a claim requests more than its class permits: small.pegasus.dev: credits = 300, at most 256; small.pegasus.dev: memory = 2Gi, at most 1Gi"
	if got := evaluate(t, p.Spec.Validations[0].MessageExpression, input); got != want {
		t.Errorf("message: %v, want %s", got, want)
	}
}
