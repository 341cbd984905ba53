"""The manifests for Kubernetes fit their schemas, the image and each other."""

import copy

import pytest

from manifests import CLUSTERS, FILES, ROOT, document, documents

TRAINJOB = ("trainjob.yaml", "TrainJob")
RUNTIME = ("trainjob.yaml", "TrainingRuntime")
MPIJOB = ("mpijob.yaml", "MPIJob")
POLICY = ("network_policy.yaml", "NetworkPolicy")
POD_OF_RUNTIME = "spec.template.spec.replicatedJobs.0.template.spec.template.spec"
WORKER = "spec.mpiReplicaSpecs.Worker"


def changed(which, path, value):
    """The manifest with another value at a path; None takes the field away."""
    whole = copy.deepcopy(document(*which))
    *way, last = path.split(".")
    part = whole
    for step in way:
        part = part[int(step) if isinstance(part, list) else step]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return whole


@pytest.fixture
def problems():
    """Says what is wrong with a manifest."""
    pytest.importorskip("kubeflow_trainer_api",
                        reason="the package kubeflow-trainer-api is not installed")
    import schemas

    return schemas.problems


def values_of_env(container):
    return {entry["name"]: entry.get("value") for entry in container.get("env", [])}


def containers():
    runtime = document(*RUNTIME)["spec"]["template"]["spec"]["replicatedJobs"][0]
    pods = [runtime["template"]["spec"]["template"]["spec"]]
    pods += [replica["template"]["spec"]
             for replica in document(*MPIJOB)["spec"]["mpiReplicaSpecs"].values()]
    return [(pod, container) for pod in pods for container in pod["containers"]]


def settings_of(name):
    lines = (CLUSTERS / "image" / name).read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip() and line[0] != "#")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_manifests_fit_their_schemas(problems, path):
    for manifest in documents(path):
        assert problems(manifest) == ""


@pytest.mark.parametrize(("which", "path", "value", "words"), [
    (TRAINJOB, "spec.trainer.numNodes", "2", "numNodes"),
    (TRAINJOB, "spec.trainer.comand", ["torchrun"], "comand: no such field"),
    (TRAINJOB, "spec.runtimeRef", None, "runtimeRef"),
    (TRAINJOB, "apiVersion", "trainer.kubeflow.org/v1", "apiVersion"),
    (TRAINJOB, "metadata.name", "Blue_Fog", "name"),
    (RUNTIME, f"{POD_OF_RUNTIME}.volumes.0.emptyDir.size", "2Gi", "size: no such field"),
    (RUNTIME, f"{POD_OF_RUNTIME}.containers.0.securityContext.runAsUser", "1000", "runAsUser"),
    (MPIJOB, "spec.slots", 2, "slots"),
    (MPIJOB, "spec.mpiImplementation", "OpenMPI5", "mpiImplementation"),
    (MPIJOB, "spec.mpiReplicaSpecs.Launcher.replicas", 2, "replicas"),
    (MPIJOB, "spec.runPolicy.cleanPodPolicy", "Always", "cleanPodPolicy"),
    (MPIJOB, f"{WORKER}.restartPolicy", None, "restartPolicy"),
    (MPIJOB, f"{WORKER}.template.spec.containers.0.readinessProbe.tcp", {}, "tcp: no such field"),
    (POLICY, "spec.podSelector.matchLabel", {}, "matchLabel: no such field"),
    (POLICY, "spec.policyTypes", ["Inbound"], "policyTypes"),
])
def test_a_wrong_manifest_is_refused(problems, which, path, value, words):
    assert words in problems(changed(which, path, value))


def test_the_trainjob_expects_the_ranks_that_it_starts():
    trainer = document(*TRAINJOB)["spec"]["trainer"]
    ranks = trainer["numNodes"] * trainer["numProcPerNode"]
    assert values_of_env(trainer)["BLUEFOG_EXPECT_SIZE"] == str(ranks)


def test_the_trainjob_runs_in_its_runtime():
    reference = document(*TRAINJOB)["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == (
        "TrainingRuntime", document(*RUNTIME)["metadata"]["name"])
    # The Trainer looks for the job by this label, and for the container by its name.
    job, = document(*RUNTIME)["spec"]["template"]["spec"]["replicatedJobs"]
    labels = job["template"]["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    pod = job["template"]["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == ["node"]


def test_the_mpijob_fills_its_slots():
    spec = document(*MPIJOB)["spec"]
    ranks = spec["slotsPerWorker"] * spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    launcher, = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    command = launcher["command"]
    assert command[:3] == ["bfrun", "-np", str(ranks)]
    # The place where the operator puts it.
    assert command[3:5] == ["--hostfile", "/etc/mpi/hostfile"]
    assert values_of_env(launcher)["BLUEFOG_EXPECT_SIZE"] == str(ranks)


def test_the_mpijob_fits_the_ssh_server_of_the_image():
    spec = document(*MPIJOB)["spec"]
    server = settings_of("sshd_config")
    worker, = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    port = str(worker["readinessProbe"]["tcpSocket"]["port"])
    assert port == server["Port"] == settings_of("ssh_config")["Port"]
    for setting in ("HostKey", "AuthorizedKeysFile"):
        assert server[setting].startswith(spec["sshAuthMountPath"] + "/")
    assert worker["command"] == ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/bluefog_sshd_config"]


def test_programs_of_manifests_are_in_the_image():
    commands = [document(*TRAINJOB)["spec"]["trainer"]["command"]]
    commands += [container["command"] for _, container in containers() if "command" in container]
    programs = [word for command in commands for word in command if word.endswith(".py")]
    assert len(programs) == 2
    for program in programs:
        assert (ROOT / program.removeprefix("/opt/bluefog_cpp/")).is_file(), program


def test_pods_run_as_the_user_of_the_image_and_have_room_in_dev_shm():
    for pod, container in containers():
        assert container["securityContext"]["runAsUser"] == 1000
        if container["name"] == "launcher":
            continue
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
        shm, = (volume for volume in pod["volumes"] if volume["name"] == "shm")
        assert shm["emptyDir"]["medium"] == "Memory"


def test_the_policy_is_that_of_the_trainjob():
    spec = document(*POLICY)["spec"]
    labels = {"jobset.sigs.k8s.io/jobset-name": document(*TRAINJOB)["metadata"]["name"]}
    assert spec["podSelector"]["matchLabels"] == labels
    assert spec["ingress"] == [{"from": [{"podSelector": {"matchLabels": labels}}]}]
