"""The schemas of the manifests: what is wrong with one by that of its kind.

TrainJobs, their runtimes and pods have the models of the package kubeflow-trainer-api. MPIJobs and
network policies have none in a small package: their own fields stand here, with pods of the same
models."""

from typing import Annotated, Any, Literal

from kubeflow_trainer_api import models
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError


def differences(given, taken, place=""):
    """The fields that a model has left out of what it was given."""
    if isinstance(given, dict) and isinstance(taken, dict):
        for name, value in given.items():
            where = f"{place}.{name}"
            if name not in taken:
                yield f"{where}: no such field"
            else:
                yield from differences(value, taken[name], where)
    elif isinstance(given, list) and isinstance(taken, list) and len(given) == len(taken):
        for index, pair in enumerate(zip(given, taken)):
            yield from differences(*pair, f"{place}[{index}]")
    elif given != taken:
        yield f"{place}: expected {taken!r}, found {given!r}"


def by_model(name):
    """A validator by a model of the package, which alone would leave out fields that it lacks."""
    def validate(value):
        taken = getattr(models, name).from_dict(value).to_dict()
        found = list(differences(value, taken))
        if found:
            raise ValueError("; ".join(found))
        return value

    return Annotated[Any, PlainValidator(validate)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class SchedulingPolicy(Strict):
    minAvailable: int | None = None
    queue: str | None = None
    minResources: dict[str, Any] | None = None
    priorityClass: str | None = None
    scheduleTimeoutSeconds: int | None = None


class RunPolicy(Strict):
    cleanPodPolicy: Literal["None", "Running", "All"] | None = None
    ttlSecondsAfterFinished: int | None = Field(None, ge=0)
    activeDeadlineSeconds: int | None = Field(None, ge=0)
    backoffLimit: int | None = Field(None, ge=0)
    schedulingPolicy: SchedulingPolicy | None = None
    suspend: bool = False
    managedBy: str | None = None


class ReplicaSpec(Strict):
    replicas: int = Field(1, ge=1)
    restartPolicy: Literal["Never", "OnFailure"]
    template: by_model("IoK8sApiCoreV1PodTemplateSpec")


class Launcher(ReplicaSpec):
    replicas: Literal[1] = 1


class ReplicaSpecs(Strict):
    Launcher: Launcher
    Worker: ReplicaSpec


class MPIJobSpec(Strict):
    slotsPerWorker: int = Field(1, ge=1)
    runLauncherAsWorker: bool = False
    runPolicy: RunPolicy = RunPolicy()
    mpiReplicaSpecs: ReplicaSpecs
    sshAuthMountPath: str = "/root/.ssh"
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "AtStartup"
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"


class MPIJob(Strict):
    apiVersion: Literal["kubeflow.org/v2beta1"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MPIJobSpec


Selector = by_model("IoK8sApimachineryPkgApisMetaV1LabelSelector")


class Port(Strict):
    port: int | str | None = None
    endPort: int | None = None
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class Peer(Strict):
    podSelector: Selector | None = None
    namespaceSelector: Selector | None = None


class Ingress(Strict):
    model_config = ConfigDict(populate_by_name=False)
    sources: list[Peer] = Field([], alias="from")
    ports: list[Port] = []


class NetworkPolicySpec(Strict):
    podSelector: Selector
    policyTypes: list[Literal["Ingress", "Egress"]] = []
    ingress: list[Ingress] = []


class NetworkPolicy(Strict):
    apiVersion: Literal["networking.k8s.io/v1"]
    kind: Literal["NetworkPolicy"]
    metadata: Metadata
    spec: NetworkPolicySpec


class Named(Strict):
    """Names of the TrainJob, whose models take any string."""

    model_config = ConfigDict(extra="ignore")
    apiVersion: Literal["trainer.kubeflow.org/v1alpha1"]
    kind: Literal["TrainJob", "TrainingRuntime"]
    metadata: Metadata


def trainer_object(model):
    def validate(value):
        Named.model_validate(value)
        taken = model.from_dict(value)
        found = list(differences(value, taken.to_dict()))
        if found:
            raise ValueError("; ".join(found))

    return validate


SCHEMAS = {
    "TrainJob": trainer_object(models.TrainerV1alpha1TrainJob),
    "TrainingRuntime": trainer_object(models.TrainerV1alpha1TrainingRuntime),
    "MPIJob": MPIJob.model_validate,
    "NetworkPolicy": NetworkPolicy.model_validate,
}


def problems(manifest):
    """The complaints about a manifest by the schema of its kind; empty where there are none."""
    try:
        SCHEMAS[manifest["kind"]](manifest)
    except (ValidationError, ValueError) as error:
        return str(error)
    return ""
