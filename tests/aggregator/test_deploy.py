"""The files for whoever runs a server fit the server: metrics, labels, settings and commands that they name exist."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import httpx
import pytest
import yaml
from changeling_aggregator.server import ROUTES, MovableClock, ServerSettings, Service, registry_of
from changeling_aggregator.testing.serving import free_port
from changeling_commands import main as run
from changeling_protocol import Refusal
from changeling_protocol.wire import ALIVE, UPLOADS

from ..e2e.conftest import Environment
from ..protocol.examples import PINNED
from .serving import eventually

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs/operator.md").read_text()
ENGINE = shutil.which("podman") or shutil.which("buildah")
ENDS = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "info": ["_info"], "gauge": [""]}
[GROUP] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
RULES = GROUP["rules"]
BOARD = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
EXPRESSIONS = [*(rule["expr"] for rule in RULES), *(target["expr"] for panel in BOARD for target in panel["targets"])]


def test_every_metric_and_label_that_rules_and_board_name_exists(store):
    """And each of the server's own but for its version is looked at by one of them. Routes and reasons are those of the
    program."""
    service = Service(store, ServerSettings(PINNED, MovableClock(0.0)))
    told = {family.name + end for family in registry_of(service).collect() for end in ENDS[family.type]}
    named = {name for each in EXPRESSIONS for name in re.findall(r"\b(?:changeling|process)_[a-z_]+", each)}
    assert named <= told
    parts = re.compile(r"_(total|bucket|sum|count)$")
    own = {parts.sub("", name) for name in told if name.startswith("changeling_")}
    assert own - {parts.sub("", name) for name in named} == {"changeling_info", "changeling_fold_failures"}
    known = {"route": {UPLOADS, *(each.path for each in ROUTES)}, "reason": {*map(str, Refusal)}}
    for expression in EXPRESSIONS:
        for label, value in re.findall(r'(\w+)!?="([^"]*)"', expression):
            assert value in known.get(label, {"changeling"}), expression


def test_every_alert_says_how_bad_it_is_and_what_it_means():
    """With a time for which it holds; and the guide has a line for each."""
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"].endswith(".")
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert f"`{rule['alert']}`" in GUIDE, rule["alert"]


@pytest.mark.parametrize(
    ("command", "file"), [("serve", "server.toml"), ("serve", "compose/server.toml"), ("relay", "relay.toml")]
)
def test_settings_are_known_to_their_command(capsys, command, file):
    """What is wrong with them here is that their files are missing, and nothing else; doctor takes them too."""
    settings = tomllib.loads((DEPLOY / file).read_text())
    files = [*settings.get("authority", []), settings["store-key-file"]] if command == "serve" else []
    assert run([command, "--settings", str(DEPLOY / file)]) == 1
    wrong = [line for line in capsys.readouterr().err.splitlines() if "settings are wrong" not in line]
    assert wrong
    assert all(line.endswith("No such file or directory") for line in wrong)
    assert not files or sorted(wrong) == sorted(f"- {each}: No such file or directory" for each in files)
    if file == "server.toml":
        assert run(["doctor", "--settings", str(DEPLOY / file)]) == 1
        assert "there is no store" in capsys.readouterr().out


def test_the_unit_starts_a_server_of_its_settings_and_leaves_no_core_dump():
    """In which the private keys of a process that crashes would lie; the guide says it of other ways to start."""
    unit = (DEPLOY / "changeling.service").read_text()
    [words] = re.findall(r"^ExecStart=/opt/changeling/bin/changeling (.*)$", unit, re.MULTILINE)
    assert words.split()[:2] == ["serve", "--settings"]
    key = tomllib.loads((DEPLOY / "server.toml").read_text())["store-key-file"]
    assert f"LoadCredential={Path(key).name}:" in unit
    assert "\nLimitCORE=0\n" in unit
    assert "ulimit -c 0" in GUIDE
    assert "--ulimit core=0" in GUIDE


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_understands_the_units(tmp_path):
    """Every line of each, with a program that is there."""
    units = [tmp_path / unit.name for unit in DEPLOY.glob("changeling*.*")]
    for unit in units:
        text = (DEPLOY / unit.name).read_text()
        unit.write_text(text.replace("/opt/changeling/bin/changeling", sys.executable))
    assert len(units) == 4
    done = subprocess.run(["systemd-analyze", "verify", *map(str, units)], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "changeling" in line] == []


def test_the_compose_file_names_what_there_is():
    """Files, variables, the proxy's network, and the name by which Prometheus asks, which the server must know as its
    own."""
    text = (DEPLOY / "compose.yaml").read_text()
    compose = yaml.safe_load(text)
    services = compose["services"]
    for service in services.values():
        for source in (volume.split(":")[0] for volume in service["volumes"]):
            assert source in compose["volumes"] or source == "./settings" or (DEPLOY / source).is_file(), source
        assert service["ulimits"] == {"core": 0}
    told = re.findall(r"^(\w+)=", (DEPLOY / "compose/environment.example").read_text(), re.MULTILINE)
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(told)
    settings = tomllib.loads((DEPLOY / "compose/server.toml").read_text())
    assert settings["proxy"] == [each["subnet"] for each in compose["networks"]["inside"]["ipam"]["config"]]
    [scraped] = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())["scrape_configs"]
    [target] = scraped["static_configs"][0]["targets"]
    assert target == f"{services['server']['hostname']}:{settings['metrics-address'].rpartition(':')[2]}"
    assert f"reverse_proxy server:{settings['port']}" in (DEPLOY / "compose/Caddyfile").read_text()
    assert [each.partition(":")[0] for each in services["proxy"]["ports"]] == ["80", "443"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == services["proxy"]["ports"]


def alive(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}{ALIVE}", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_the_images_steps_make_a_server_of_an_empty_tree(tmp_path):
    """As the Containerfile has them, on what .dockerignore lets in; the program that comes of it serves. What it asks
    for is linked from where the tests run, as copies would take a minute."""
    containerfile = (DEPLOY / "Containerfile").read_text()
    lets_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for name in subprocess.check_output(["git", "ls-files", *lets_in], cwd=ROOT, text=True).split():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    built = Environment(tmp_path / "built")
    [steps] = re.findall(r"^RUN (python -m venv (?:.*\\\n)*.*)$", containerfile, re.MULTILINE)
    script = steps.replace("/opt/changeling", str(built.folder)).replace("python ", f"{sys.executable} ", 1)
    assert script.count("--no-cache-dir") == 1
    command = ["sh", "-ec", script.replace("--no-cache-dir", "--no-deps --no-compile --no-build-isolation")]
    builds = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    subprocess.run(command, cwd=tmp_path / "source", env=builds, check=True, capture_output=True)
    [extra] = re.findall(r"\.\[(\w+)\]", containerfile)
    built.link(extra)
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    port = free_port()
    words = ["serve", "--store", "s.db", "--authority", "authority.pub", "--port", str(port)]
    server = subprocess.Popen([built.folder / "bin/changeling", *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: alive(port), True)
    finally:
        server.terminate()
    assert server.wait(30) == 0


@pytest.mark.heavy
@pytest.mark.skipif(not ENGINE, reason="there is no podman or buildah")
def test_the_image_is_built(tmp_path):
    """As the Containerfile's first line says."""
    words = [ENGINE, "build", "--format", "docker", "-f", str(DEPLOY / "Containerfile")]
    subprocess.run([*words, "--iidfile", str(tmp_path / "id"), str(ROOT)], check=True, capture_output=True)
    assert (tmp_path / "id").read_text().startswith("sha256:")


def test_the_container_runs_what_there_is():
    """Its command and its probe, as a user of its own."""
    lines = (DEPLOY / "Containerfile").read_text()
    assert all(words in lines for words in (ALIVE, 'CMD ["changeling", "serve"]', "USER changeling"))
