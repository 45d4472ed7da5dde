package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
}

// apiServer stores the objects that the driver reads and writes, and serves them over HTTP as an API server does: get,
// list, watch, create, update and delete, without validation, admission and access control, and the proxy of pods. A real
// API server takes minutes to build.
type apiServer struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	version  int                          // of the latest change
	objects  map[string]map[string]object // by resource and name
	watchers map[chan metav1.WatchEvent]string
	requests map[string]int // by method and resource
}

// kinds are the served resources.
var kinds = map[string]struct {
	kind schema.GroupVersionKind
	make func() object
}{
	"pods":           {corev1.SchemeGroupVersion.WithKind("Pod"), func() object { return new(corev1.Pod) }},
	"nodes":          {corev1.SchemeGroupVersion.WithKind("Node"), func() object { return new(corev1.Node) }},
	"resourceslices": {resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"), func() object { return new(resourceapi.ResourceSlice) }},
	"resourceclaims": {resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), func() object { return new(resourceapi.ResourceClaim) }},
}

func serveAPI(t testing.TB) *apiServer {
	a := &apiServer{t: t, version: 1, objects: map[string]map[string]object{}, watchers: map[chan metav1.WatchEvent]string{}, requests: map[string]int{}}
	for resource := range kinds {
		a.objects[resource] = map[string]object{}
	}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// put stores an object as a user or a controller does.
func (a *apiServer) put(resource string, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(resource, "", o)
}

// remove deletes an object as a user or a controller does.
func (a *apiServer) remove(resource, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.objects[resource][namespace+"/"+name]; ok {
		delete(a.objects[resource], namespace+"/"+name)
		a.changed(resource, "DELETED", o)
	}
}

// slices returns the slices of the node.
func (a *apiServer) slices() (all []*resourceapi.ResourceSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.objects["resourceslices"] {
		all = append(all, o.DeepCopyObject().(*resourceapi.ResourceSlice))
	}
	return all
}

// store adds or replaces an object. The lock is held.
func (a *apiServer) store(resource, namespace string, o object) {
	o.GetObjectKind().SetGroupVersionKind(kinds[resource].kind)
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), a.version))
	}
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("5e5e5e5e-0000-4000-8000-%012d", a.version)))
	}
	key := o.GetNamespace() + "/" + o.GetName()
	event := "ADDED"
	if _, has := a.objects[resource][key]; has {
		event = "MODIFIED"
	}
	a.objects[resource][key] = o
	a.changed(resource, event, o)
}

// changed gives an object a new version and notifies the watchers. The lock is held.
func (a *apiServer) changed(resource, event string, o object) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	for w, of := range a.watchers {
		if of == resource {
			w <- watchEvent(event, o)
		}
	}
}

func watchEvent(event string, o runtime.Object) metav1.WatchEvent {
	text, _ := json.Marshal(o)
	return metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: text}}
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// /api/v1/nodes/NAME, /apis/resource.k8s.io/v1/[namespaces/NAMESPACE/]RESOURCE[/NAME]
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	path = path[min(len(path), map[string]int{"api": 2, "apis": 3}[path[0]]):]
	namespace, name := "", ""
	if len(path) > 2 && path[0] == "namespaces" {
		namespace, path = path[1], path[2:]
	}
	if len(path) > 1 {
		name = path[1]
	}
	if len(path) > 3 && path[0] == "pods" && path[2] == "proxy" {
		a.proxy(w, r, namespace, name, "/"+strings.Join(path[3:], "/"))
		return
	}
	status := len(path) == 3 && path[2] == "status"
	if len(path) == 0 || kinds[path[0]].make == nil || len(path) > 2 && !status {
		a.t.Errorf("the driver requests %s %s", r.Method, r.URL)
		answer(w, http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404})
		return
	}
	resource := path[0]
	a.mu.Lock()
	a.requests[r.Method+" "+resource]++
	a.mu.Unlock()
	if r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
		a.watch(w, r, resource)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	result, err := a.do(r, resource, namespace, name)
	if status, ok := err.(apierrors.APIStatus); ok {
		answer(w, int(status.Status().Code), status.Status())
		return
	}
	answer(w, http.StatusOK, result)
}

// do executes a request. The lock is held.
func (a *apiServer) do(r *http.Request, resource, namespace, name string) (any, error) {
	key, kind := namespace+"/"+name, kinds[resource]
	has, ok := a.objects[resource][key]
	of := schema.GroupResource{Group: kind.kind.Group, Resource: resource}
	switch {
	case r.Method == http.MethodGet && name == "":
		return a.list(resource, r.URL.Query().Get("labelSelector"))
	case r.Method == http.MethodPost:
		o, err := body(r)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		a.store(resource, namespace, o)
		return o, nil
	case !ok:
		return nil, apierrors.NewNotFound(of, name)
	case r.Method == http.MethodGet:
		return has, nil
	case r.Method == http.MethodPut:
		o, err := body(r)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if o.GetResourceVersion() != has.GetResourceVersion() {
			return nil, apierrors.NewConflict(of, name, fmt.Errorf("version %s is old", o.GetResourceVersion()))
		}
		a.store(resource, namespace, o)
		return o, nil
	case r.Method == http.MethodPatch && resource == "resourceclaims" && strings.HasSuffix(r.URL.Path, "/status"):
		return a.applyStatus(r, has.(*resourceapi.ResourceClaim))
	case r.Method == http.MethodDelete:
		delete(a.objects[resource], key)
		a.changed(resource, "DELETED", has)
		return metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return nil, apierrors.NewMethodNotSupported(of, r.Method)
}

// applyStatus replaces the devices of a claim's status, as the only field manager of them. The lock is held.
func (a *apiServer) applyStatus(r *http.Request, has *resourceapi.ResourceClaim) (any, error) {
	text, err := io.ReadAll(r.Body)
	var patch resourceapi.ResourceClaim
	if err == nil {
		err = yaml.UnmarshalStrict(text, &patch)
	}
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	case r.Header.Get("Content-Type") != string(types.ApplyYAMLPatchType) && r.Header.Get("Content-Type") != string(types.ApplyCBORPatchType):
		return nil, apierrors.NewBadRequest("it is no apply patch")
	case patch.UID != has.UID:
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "resourceclaims"}, has.Name, fmt.Errorf("it is another claim"))
	}
	next := has.DeepCopy()
	next.Status.Devices = patch.Status.Devices
	a.store("resourceclaims", "", next)
	return next, nil
}

// body returns the object in a request's body, JSON or protocol buffers.
func body(r *http.Request) (object, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	return o.(object), nil
}

// proxy passes a request to a pod, http:NAME:PORT, at its address.
func (a *apiServer) proxy(w http.ResponseWriter, r *http.Request, namespace, name, path string) {
	name, port, _ := strings.Cut(strings.TrimPrefix(name, "http:"), ":")
	a.mu.Lock()
	a.requests[r.Method+" pods/proxy"]++
	pod, ok := a.objects["pods"][namespace+"/"+name].(*corev1.Pod)
	a.mu.Unlock()
	if !ok {
		answer(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name).ErrStatus)
		return
	}
	p := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL = &url.URL{Scheme: "http", Host: pod.Status.PodIP + ":" + port, Path: path}
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		answer(w, http.StatusServiceUnavailable, apierrors.NewServiceUnavailable("error trying to reach service: "+err.Error()).ErrStatus)
	}}
	p.ServeHTTP(w, r)
}

// list returns the objects of a resource that a selector of labels permits. The lock is held.
func (a *apiServer) list(resource, selector string) (any, error) {
	match, err := labels.Parse(selector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	items := []object{}
	for _, o := range a.objects[resource] {
		if match.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o)
		}
	}
	kind := kinds[resource].kind
	return map[string]any{"kind": kind.Kind + "List", "apiVersion": kind.GroupVersion().String(),
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": items}, nil
}

// watch sends all changes of a resource; with sendInitialEvents all objects before them.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan metav1.WatchEvent, 1000)
	a.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range a.objects[resource] {
			events <- watchEvent("ADDED", o)
		}
		mark := kinds[resource].make()
		mark.GetObjectKind().SetGroupVersionKind(kinds[resource].kind)
		mark.SetResourceVersion(strconv.Itoa(a.version))
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		events <- watchEvent("BOOKMARK", mark)
	}
	a.watchers[events] = resource
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watchers, events)
		a.mu.Unlock()
	}()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		}
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v)
}
