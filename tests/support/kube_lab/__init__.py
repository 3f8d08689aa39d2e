"""A real Kubernetes for tests: etcd, kube-apiserver, kube-controller-manager and a node of ours.

Fixtures (tests/kube/conftest.py); ask for ``node`` whenever pods must run or get Ready:

    control_plane   session  ControlPlane, one for all workers
    node            session  NodeProcess: runs the pods of all namespaces as real processes
    namespace       test     Namespace with a name of its own, cleaned up afterwards
    proxy           test     MisbehavingProxy between a client under test and the API server

Control plane:

    control_plane.api                   Api of the administrator (default namespace "default")
    control_plane.kubeconfig, .url, .ca_file
    control_plane.audit.mark()          a position, then
    control_plane.audit.writes(since=mark, user_agent="failback", user=identity.user,
                               namespace="", resource="pods/status") -> [Write(verb, resource,
                               name, code, user_agent, ...)];  .counts(since=mark) by user agent
    control_plane.install_definition(crd)      a CRD added late

Control plane of tests/kube/own_server, an OwnControlPlane for each file:

    control_plane.api_server.kill(); control_plane.start_api_server();  .pause() / .resume()
    control_plane.restart_controllers()        makes the garbage collector know a late CRD

Namespace:

    namespace.name, namespace.kubeconfig (administrator, this namespace), namespace.folder
    namespace.api                       Api whose default namespace is this one
    namespace.identity("op", rules, cluster_rules=..., server=proxy.url) -> Identity
                                        (name, user, token, kubeconfig) of a new ServiceAccount
    namespace.identity_of("op")         of one that exists, such as a chart's
    namespace.kubectl("get", "pods", stdin="", check=True) -> Completed(code, out, err)
    namespace.helm("install", ...)      commands of another identity: namespace.commands(identity)
    namespace.create_claim("runs")      1 GiB of the default class
    namespace.pretend_pods()            before any pod: they become Ready without a process

Proxy (module docstring of proxy.py has all commands):

    namespace.kubeconfig_through(proxy.url), or namespace.identity(..., server=proxy.url)
    proxy.answer(409, verb="patch", resource="statefulsets", times=2), .time_out(...),
    proxy.watch_events(drop=0.2, double=0.2, delay_seconds=0.5, seed=7), .expire_watches(), .cut()
    proxy.after_write = lambda write: ...      after each write, before its client hears of it
    proxy.writes("failback") -> [Write(index, verb, resource, namespace, name, user_agent, code)]

Api: get(kind, name), find (or None), list(kind, labels=, fields=, namespace="*"), create(obj),
replace(obj), apply(obj, manager=, force=, dry_run=), patch(kind, name, body, type="merge" |
"strategic" | "json", subresource="status"), delete(kind, name, grace=, propagation=),
wait(kind, name, condition, seconds=60), wait_gone(kind, name). Kinds are spelt as in manifests.
Every refusal is an ApiError with code, reason, message and the whole status.

Node:

    node.pid(ns, pod, container=""), node.pids(...)   PID 1 of the container, then its children
    node.kill_container(ns, pod)        SIGKILL of PID 1: the whole container dies
    node.kill_program(ns, pod, signum)  signal what failback-init runs: the broker itself
    node.claim_folder(ns, claim), node.pod_folder(ns, pod)   folders of this machine
    StorageClasses "standard" (default, grows) and "fixed" (never grows); claims that are deleted
    take their data along. Native sidecars (init containers with restartPolicy Always) run beside
    the main containers. Images are not pulled; a container without a command starts what the
    project's Dockerfile says for the stage of the image's name; one of Apache RocketMQ runs the
    jars of its tag's version, which tools/setup_java.py fetches, and listens at the pod's address
    alone; the tag "does-not-exist" gives ImagePullBackOff. In pods
    https://kubernetes.default.svc is the API server. Logs and exec work through it (WebSocket
    clients only).

Once ``node`` was asked for, the test process and everything that it starts afterwards (an operator
under test) resolve the DNS names of pods and services, by a private mount of /etc/hosts.

Custom resource definitions are those of charts/failback/crds-src/*.yaml, applied before the
controller manager starts, so that garbage collection knows the kinds from the beginning.
"""
