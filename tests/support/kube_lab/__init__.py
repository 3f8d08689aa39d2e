"""A real Kubernetes for tests: etcd, kube-apiserver, kube-controller-manager and a node of ours.

Fixtures (tests/kube/conftest.py):

    control_plane   session  ControlPlane: api (admin client), kubeconfig, audit (AuditLog),
                             restart_api_server(), pause/kill of its servers
    node            session  Node: runs the pods that are bound to it as real processes;
                             pids(), kill_container(), log_file(). Ask for it when pods must run
    namespace       test     Namespace with a name of its own, cleaned up afterwards
    misbehaving     test     MisbehavingProxy in front of the API server, with a kubeconfig

What to call:

    control_plane.api               Api: get, list, create, apply, patch, delete, wait (below)
    control_plane.kubeconfig        path, of system:masters
    namespace.name                  "t-..."; also the default of namespace.api
    namespace.api                   Api whose default namespace is this one
    namespace.identity("op", rules) Identity of a new ServiceAccount with a Role of these rules:
                                    .kubeconfig (path), .token, .user_agent is yours to choose
    namespace.kubectl("get", "pods")          kubectl with -n NAME; returns Completed (out, err)
    namespace.helm("install", ...)            helm with --namespace NAME
    namespace.pretend_pods()        pods of this namespace become Ready without any process
    control_plane.audit.mark()      position in the audit log, then
    control_plane.audit.writes(since=mark, user_agent="failback", namespace=..., user=...)

    api.get("pods", name), api.list("apps/v1", "statefulsets") are spelt by kind:
    api.get("Pod", "a-0"); api.list("StatefulSet", labels="a=b"); api.create(obj);
    api.apply(obj, manager="me", force=True); api.patch("Pod", name, body, kind_of="merge");
    api.delete("Pod", name, grace=0); api.wait("Pod", name, lambda pod: ..., seconds=30)
    Every refusal is an ApiError with .code, .reason and .message.

Custom resource definitions are taken from charts/failback/crds-src/*.yaml and applied before the
controller manager starts, so that garbage collection knows the kinds from the beginning.

The test process sees the pods' DNS names (a private mount of /etc/hosts made by ``node``), and so
does every process that it starts afterwards, such as an operator under test.
"""
