"""Alerts fire for what they name and for nothing beside it, by Prometheus' own program for unit tests of rules."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tools import ROOT
from tools.system_programs import require

NAMESPACE = "mu-grpo-development"
SERIES = {
    'kube_pod_status_phase{pod="verify-1",phase="Failed"}': "1x120",
    'kube_pod_status_phase{pod="train-1",phase="Failed"}': "1x120",
    'kube_pod_labels{pod="verify-1",label_mu_grpo_role="verify"}': "1x120",
    'kube_pod_labels{pod="train-1",label_mu_grpo_role="train"}': "1x120",
    'kube_pod_status_phase{pod="stuck",phase="Running"}': "1x120",
    'container_cpu_usage_seconds_total{pod="stuck",container="main"}': "100x120",
    'kube_pod_status_phase{pod="busy",phase="Running"}': "1x120",
    'container_cpu_usage_seconds_total{pod="busy",container="main"}': "0+60x120",
    # Of every pod the sandbox is told too, which computes nothing, and a helper beside it may wait.
    'container_cpu_usage_seconds_total{pod="busy",container="",image="pause"}': "0x120",
    'container_cpu_usage_seconds_total{pod="busy",container="helper"}': "5x120",
    'kube_pod_status_phase{pod="waiting",phase="Pending"}': "1x120",
    'DCGM_FI_DEV_GPU_UTIL{exported_pod="idle"}': "0x120",
    'DCGM_FI_DEV_GPU_UTIL{exported_pod="used"}': "90x120",
}
FIRES = {
    "VerifierKilled": {"pod": "verify-1", "phase": "Failed"},
    "StuckPhase": {"pod": "stuck", "phase": "Running"},
    "PendingPod": {"pod": "waiting", "phase": "Pending"},
    "IdleGPU": {"exported_pod": "idle"},
}


def test_alerts_fire_on_their_metrics(tmp_path: Path) -> None:
    promtool = require("promtool")
    spec = yaml.safe_load((ROOT / "k8s/components/monitoring/rules.yaml").read_text())["spec"]
    rules: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}
    assert rules.keys() == FIRES.keys()
    for rule in rules.values():
        assert {"summary", "description"} <= rule.pop("annotations").keys()
    series = []
    for one, values in SERIES.items():
        label = "exported_namespace" if one.startswith("DCGM") else "namespace"
        series.append({"series": one.replace("{", f'{{{label}="{NAMESPACE}",'), "values": values})
    expected = []
    for name, labels in FIRES.items():
        label = "exported_namespace" if name == "IdleGPU" else "namespace"
        found = {"severity": "warning", label: NAMESPACE, **labels}
        expected.append({"eval_time": "90m", "alertname": name, "exp_alerts": [{"exp_labels": found}]})
    test = {"interval": "1m", "input_series": series, "alert_rule_test": expected}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
