"""Keys from everywhere that each vendor's own tools look, to real stores; and nothing tells them."""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timezone

import azure_upload
import libst
import pytest
from conftest import KEYS, STCTL, Stopped, check, fails, no_secret_in, stctl, stopper
from libst import Status
from stores import put_to_google
from token_services import ENDS


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


class Aws:
    """A user of AWS with a home of their own, and keys from somewhere."""

    def __init__(self, home, environment, tokens):
        self._home, self._set, self._tokens = home, environment.setenv, tokens
        self._set("AWS_ENDPOINT_URL_STS", tokens.url)
        self._set("AWS_ENDPOINT_URL_SSO", tokens.url)
        self._set("AWS_ENDPOINT_URL_SSO_OIDC", tokens.url)

    def _config(self, text):
        write(self._home / ".aws" / "config", text)

    def profile(self):
        write(
            self._home / ".aws" / "credentials",
            f"[mine]\naws_access_key_id = {KEYS[0]}\naws_secret_access_key = {KEYS[1]}\n",
        )
        self._config("[profile mine]\nregion = us-east-1\n")
        self._set("AWS_PROFILE", "mine")

    def role(self):
        self._config(
            "[default]\nrole_arn = arn:role\nsource_profile = source\n"
            f"[profile source]\naws_access_key_id = source\naws_secret_access_key = {KEYS[1]}\n"
        )

    def web_identity(self):
        self._set("AWS_WEB_IDENTITY_TOKEN_FILE", write(self._home / "token", "a-token\n"))
        self._set("AWS_ROLE_ARN", "arn:role")

    def sso(self):
        self._config(
            "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n"
            "[sso-session s]\nsso_start_url = https://start\nsso_region = us-east-1\n"
        )
        self._log_in(accessToken="a-token", expiresAt=ENDS)

    def _log_in(self, **login):
        self.login = self._home / ".aws/sso/cache" / f"{hashlib.sha1(b's').hexdigest()}.json"
        write(self.login, json.dumps(login))

    def sso_that_has_ended(self):
        self.sso()
        old = {"accessToken": "old", "expiresAt": "2020-01-01T00:00:00Z", "refreshToken": "another-secret"}
        self._log_in(**old, clientId="c", clientSecret="hidden", registrationExpiresAt=ENDS)

    def process(self):
        self.process_of(f"print('''{self._tokens.json_keys(Version=1)}''')")

    def process_of(self, program):
        self._config(f"[default]\ncredential_process = {shlex.join([sys.executable, '-c', program])}\n")

    def container(self):
        self._set("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{self._tokens.url}/container")
        self._set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a-token")

    def instance(self):
        self._set("AWS_EC2_METADATA_DISABLED", "false")
        self._set("AWS_EC2_METADATA_SERVICE_ENDPOINT", self._tokens.url)


@pytest.fixture
def aws(tmp_path, monkeypatch, tokens):
    return Aws(tmp_path, monkeypatch, tokens)


SERVICES = ["role", "web_identity", "sso", "sso_that_has_ended", "container", "instance"]


@pytest.mark.parametrize("origin", ["profile", "process", *SERVICES])
def test_keys_of_aws(gateway, aws, tokens, arrays, monkeypatch, origin):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway)
    getattr(aws, origin)()
    with libst.open("s3://models/shards/") as f:
        assert f.read("small").tolist() == arrays["small"].tolist()
    asked = len(tokens.asked)
    libst.open("s3://models/plain/model.safetensors").close()
    assert len(tokens.asked) == asked, "keys are kept"
    assert bool(asked) == (origin in SERVICES)


def _silent(origin, aws, tokens, tmp_path, monkeypatch):
    """An origin of keys that does not answer, and a function: is it asked?"""
    if origin == "process":
        begun = tmp_path / "begun"
        aws.process_of(f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(1000)")
        return begun.exists
    monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "1000")
    getattr(aws, origin)()
    tokens.go_on.clear()
    return lambda: tokens.asked


@pytest.mark.parametrize("origin", ["process", "instance", "container"])
def test_a_call_that_waits_for_keys_can_be_stopped(gateway, aws, tokens, arrays, tmp_path, monkeypatch, origin):
    monkeypatch.setenv("AWS_ENDPOINT_URL", gateway)
    is_asked = _silent(origin, aws, tokens, tmp_path, monkeypatch)
    begun = time.monotonic()
    with stopper(is_asked), pytest.raises(Stopped):
        libst.load("s3://models/model.safetensors")
    assert time.monotonic() - begun < 20
    assert len(tokens.asked) == (origin != "process")
    # That nobody answered is not kept.
    tokens.go_on.set()
    if origin == "process":
        aws.process()
    check(libst.load("s3://models/model.safetensors"), arrays)


def test_an_interrupted_stctl_leaves_no_program_behind(aws, tmp_path):
    begun, new = tmp_path / "begun", tmp_path / "new"
    aws.process_of(
        f"import os, time; open({str(new)!r}, 'w').write(str(os.getpid())); "
        f"os.rename({str(new)!r}, {str(begun)!r}); time.sleep(1000)"
    )
    with subprocess.Popen([STCTL, "ls", "s3://models/a"], stderr=subprocess.PIPE, text=True) as process:
        while not begun.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == "stctl: interrupted\n"
    assert process.returncode == -signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


@pytest.mark.parametrize("origin", SERVICES)
def test_a_service_that_refuses_is_named(gateway, aws, tokens, monkeypatch, origin):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway)
    getattr(aws, origin)()
    tokens.refuse = 403
    with fails(
        Status.PERMISSION, match="anonymously" if origin == "instance" else r"403 access_denied \(request id REQ"
    ):
        libst.open("s3://models/model.safetensors")


@pytest.fixture
def signed(faults, monkeypatch):
    """The server of faults, as a store that speaks S3."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", faults.url.rsplit("/", 1)[0])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    return faults


def test_keys_that_end_amid_a_read(signed, aws, arrays, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    count = tmp_path / "count"
    program = write(
        tmp_path / "keys",
        f'echo >>{count}; printf \'{{"Version":1,"AccessKeyId":"K%d","SecretAccessKey":"hidden"}}\' $(wc -l <{count})',
    )
    write(tmp_path / ".aws" / "config", f"[default]\ncredential_process = sh {program}\n")
    signed.script = [None, None, "expired"]
    check(libst.load("s3://bucket/model.safetensors"), arrays)
    assert {by.split("=")[1].split("/")[0] for by, _ in signed.signed} == {"K1", "K2"}
    signed.script = ["expired"] * 100
    with fails(Status.PERMISSION, match=r"ExpiredToken.*request id REQUEST17.*credential_process"):
        libst.open("s3://bucket/model.safetensors")
    assert count.read_text().count("\n") == 3, "once for each time that they were refused"


def test_a_wrong_clock_is_set_once(signed, arrays):
    signed.script = ["late"]
    check(libst.load("s3://bucket/model.safetensors"), arrays)
    assert signed.signed[0][1][:8] == datetime.now(timezone.utc).strftime("%Y%m%d")
    assert all(date.startswith("20300524T") for _, date in signed.signed[1:])
    signed.script = ["late"] * 100
    with fails(Status.PERMISSION, match="RequestTimeTooSkewed"):
        libst.open("s3://bucket/model.safetensors")


def test_a_bucket_of_another_region_is_asked_there_once(signed, arrays):
    signed.script = ["elsewhere"]
    check(libst.load("s3://bucket/model.safetensors"), arrays)
    assert "/us-east-1/s3/" in signed.signed[0][0]
    assert all("/eu-west-3/s3/" in by for by, _ in signed.signed[1:])
    signed.script = ["elsewhere"] * 100
    with fails(Status.UNSUPPORTED, match="AWS_REGION.*request id REQUEST17"):
        libst.open("s3://bucket/model.safetensors")


def test_what_is_signed_follows_no_redirect(signed):
    signed.script = ["to another host"] * 100
    with fails(Status.UNSUPPORTED, match="request id REQUEST17"):
        libst.open("s3://bucket/model.safetensors")


def test_a_link_of_the_hub_that_ends_amid_a_read(faults, arrays, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", faults.url.rsplit("/", 1)[0])
    faults.script = [None, None, 403]
    check(libst.load("hf://owner/model/model.safetensors"), arrays)
    assert faults.links == 2
    faults.script = [None] * len(faults.requests) + [403] * 100
    with fails(Status.PERMISSION, match="403 ScriptedFault.*request id REQUEST17"):
        libst.open("hf://owner/model/model.safetensors")


def test_a_token_that_came_with_a_line_end(nginx, arrays, monkeypatch):
    """As out of a file, by a shell or a cluster's secret."""
    monkeypatch.setenv("HF_ENDPOINT", nginx.http)
    monkeypatch.setenv("HF_TOKEN", "hf_hidden\r\n")
    check(libst.load("hf://owner/model/model.safetensors"), arrays)
    monkeypatch.setenv("HF_TOKEN", "hf_hidden\nX-Other: field")
    with fails(Status.IO, match="has a line end in it$"):
        libst.open("hf://owner/model/model.safetensors")


def test_a_service_account_of_google(google_store, tokens, tmp_path, monkeypatch):
    """fake-gcs-server takes any token, so what the token's service was asked is looked at."""
    key = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, text=True, check=True).stdout
    account = {
        "type": "service_account",
        "client_email": "me@x",
        "private_key": key,
        "token_uri": f"{tokens.url}/token",
    }
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", write(tmp_path / "account.json", json.dumps(account)))
    tokens.refuse = 401
    with fails(Status.PERMISSION, match="Google's token service answered 401 access_denied"):
        libst.open("gs://models/model.safetensors")
    assert "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey" in tokens.asked[0][3]
    account["private_key"] = "hidden"
    write(tmp_path / "account.json", json.dumps(account))
    with fails(Status.PERMISSION, match="'me@x' has no private key"):
        libst.open("gs://models/model.safetensors")


def test_a_login_that_was_renewed_is_there_for_the_next_process(gateway, aws, tokens, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway)
    aws.sso_that_has_ended()
    for asked in (["/token", "/federation"], ["/federation"]):
        tokens.asked.clear()
        ran = stctl("ls", "s3://models/model.safetensors")
        assert ran.returncode == 0, ran
        assert ["/" + path.split("/")[1] for _, path, *_ in tokens.asked] == asked
    kept = json.loads(aws.login.read_text())
    assert (kept["accessToken"], kept["refreshToken"], kept["clientSecret"]) == ("a-token", "another-token", "hidden")
    assert aws.login.stat().st_mode & 0o777 == 0o600
    assert [*aws.login.parent.iterdir()] == [aws.login]


def test_an_account_of_google_whose_program_says_the_token(google_store, tokens, tmp_path, monkeypatch):
    """fake-gcs-server takes any token, so what the token's service was asked is looked at."""
    said = {"version": 1, "success": True, "token_type": "urn:ietf:params:oauth:token-type:jwt", "id_token": "hidden"}
    program = f"import json, os; print(json.dumps({said} | {{'expiration_time': 4070908800}}))"
    account = {
        "type": "external_account",
        "audience": "//a",
        "subject_token_type": "urn:t",
        "token_url": f"{tokens.url}/token",
        "credential_source": {"executable": {"command": shlex.join([sys.executable, "-c", program])}},
    }
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", write(tmp_path / "account.json", json.dumps(account)))
    tokens.refuse = 401
    with fails(Status.PERMISSION, match="set GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES=1"):
        libst.open("gs://models/model.safetensors")
    monkeypatch.setenv("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")
    with fails(Status.PERMISSION, match="Google's STS answered 401 access_denied"):
        libst.open("gs://models/model.safetensors")
    assert "subject_token=hidden&subject_token_type=urn%3At" in tokens.asked[0][3]


def test_an_impersonated_service_account_of_google(tokens, tmp_path, monkeypatch):
    """As `gcloud auth application-default login --impersonate-service-account` writes it. Its token is for Google's own
    store, to which no request gets."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ST_REMOTE_DEADLINE_SECONDS", "1")
    user = {"type": "authorized_user", "token_uri": f"{tokens.url}/token", "client_id": "c"}
    account = {
        "type": "impersonated_service_account",
        "source_credentials": user | {"client_secret": "another-secret", "refresh_token": "hidden"},
        "delegates": ["first@x"],
    }
    for number, (name, status, said) in enumerate([
        ("nobody", Status.PERMISSION, "Google's IAM, asked for a service account, answered 404"),
        ("me@x:generateAccessToken", Status.IO, "127.0.0.1"),
    ]):  # fmt: skip
        account["service_account_impersonation_url"] = f"{tokens.url}/serviceAccounts/{name}"
        path = write(tmp_path / f"{number}.json", json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
        tokens.asked.clear()
        with fails(status, match=said):
            libst.open("gs://models/model.safetensors")
        (_, _, _, renewed), (method, path, fields, impersonated) = tokens.asked
        assert renewed == "grant_type=refresh_token&client_id=c&client_secret=another-secret&refresh_token=hidden"
        assert (method, path) == ("POST", f"/serviceAccounts/{name}")
        assert fields["Authorization"] == f"Bearer {KEYS[1]}"
        assert json.loads(impersonated)["delegates"] == ["first@x"]


def test_an_object_of_google_that_is_replaced(google_store, arrays, folder, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google_store.removeprefix("http://"))
    put_to_google(google_store, "replaced", (folder / "model.safetensors").read_bytes())
    with libst.open("gs://models/replaced") as f:
        put_to_google(google_store, "replaced", (folder / "other.safetensors").read_bytes())
        with fails(Status.FILE_CHANGED):
            f.read("long")
    with urllib.request.urlopen(f"{google_store}/storage/v1/b/models/o/replaced") as told:
        version = f"gs://models/replaced#{json.load(told)['generation']}"
    assert libst.load(version)["small"].tolist() == (arrays["small"] + 1).tolist()
    put_to_google(google_store, "replaced", (folder / "model.safetensors").read_bytes())
    with fails(Status.NO_FILE, match="404"):
        libst.open(version)
    with fails(Status.NO_FILE, match="404"):
        libst.open("gs://no-such-bucket/a")


def test_azure_by_each_kind_of_key(azurite, tokens, monkeypatch):
    endpoint = azurite.split("BlobEndpoint=")[1].rstrip(";")
    signature = azure_upload.shared_access_signature()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", azure_upload.ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", endpoint)
    for name, value in {"AZURE_STORAGE_KEY": azure_upload.KEY, "AZURE_STORAGE_SAS_TOKEN": f"?{signature}"}.items():
        monkeypatch.setenv(name, value)
        libst.open("az://models/model.safetensors").close()
        monkeypatch.delenv(name)
    libst.open(f"{endpoint}/models/model.safetensors?{signature}").close()  # a URL of its own
    for url in ("az://models", "abfss://models@devstoreaccount1"):
        for path in ("model.safetensors", "shards/", "shards/model.safetensors.index.json"):
            with libst.open(f"{url}/{path}?{signature}") as f:
                f.read("small")
                assert "sig=" not in repr(f) + " ".join(f.shards)
    with fails(Status.NO_FILE, match="404 BlobNotFound"):
        libst.open(f"az://models/nothing?{signature}")
    with fails(Status.PERMISSION, match="the signature in the URL"):
        libst.open(f"az://models/model.safetensors?{signature.replace('sig=', 'sig=a')}")
    with fails(Status.NO_FILE, Status.PERMISSION, match=r"request id"):
        libst.open("az://models/model.safetensors")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "YW5vdGhlci1zZWNyZXQ=")
    with fails(Status.PERMISSION, match=r"403 .*request id.*keys of the account 'devstoreaccount1'"):
        libst.open("az://models/model.safetensors")
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID"):
        monkeypatch.setenv(name, "i")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "another-secret")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", tokens.url)
    tokens.refuse = 401
    with fails(Status.PERMISSION, match="Entra answered 401 access_denied"):
        libst.open("az://models/model.safetensors")


def test_what_was_signed_does_not_stay_in_memory(signed, aws, tmp_path):
    """But for the request as libcurl has sent it: there a blank stands before the token."""
    write(
        tmp_path / ".aws" / "credentials",
        "[default]\naws_access_key_id = K\naws_secret_access_key = a-secret-key\naws_session_token = a-token-of-keys\n",
    )
    program = """if True:
        import libst
        libst.open("s3://bucket/model.safetensors").close()
        found = [0, 0]
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps.read().splitlines():
                if " rw" in line:
                    begin, end = (int(at, 16) for at in line.split()[0].split("-"))
                    memory.seek(begin)
                    part = memory.read(end - begin).split(b"a-")
                    found[0] += sum(each[:10] == b"secret-key" for each in part[1:])
                    found[1] += sum(
                        each[:13] == b"token-of-keys" and before[-6:] == b"token:"
                        for before, each in zip(part, part[1:])
                    )
        print(found)
    """
    without_keys = {k: v for k, v in os.environ.items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    told = subprocess.run([sys.executable, "-c", program], env=without_keys, capture_output=True, text=True, check=True)
    assert told.stdout == "[0, 0]\n"
    assert signed.signed


@pytest.mark.parametrize("origin", ["profile", "process", *SERVICES])
def test_no_program_shows_a_secret(signed, aws, tokens, monkeypatch, origin):
    """Whatever stctl writes, where all goes well and where each part fails."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    getattr(aws, origin)()
    for refused, script in ((0, []), (0, [403] * 9), (0, ["expired"] * 9), (0, [None, 404]), (403, [403] * 9)):
        tokens.refuse = refused
        signed.script, signed.requests[:] = script, []
        for command in ("io", "verify"):
            ran = stctl(command, "s3://bucket/model.safetensors")
            no_secret_in(ran.stdout + ran.stderr)
            assert (ran.returncode == 0) == (not script or (command == "io" and script[0] is None)), ran
