"""Which listeners speak TLS, and what is wrong with a configuration that cannot."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from net.certificates import Authority
from quorate.node.config import ConfigError, NodeConfig, parse_config
from quorate.node.tls import Tls, protocol_of

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def key(authority: Authority) -> Path:
    return authority.signed("node")


def configured(**settings: str | None) -> NodeConfig:
    given = {
        "process.roles": "broker",
        "node.id": "101",
        "listeners": "SECURE://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "SECURE:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "SECURE",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": "/data",
    }
    given |= {name.replace("_", "."): value for name, value in settings.items() if value is not None}
    return parse_config("broker.properties", given)


@pytest.mark.parametrize(
    ("mapped", "listener", "protocol"),
    [
        ("A:SSL, b:plaintext", "A", "SSL"),
        ("A:SSL, b:plaintext", "B", "PLAINTEXT"),
        ("A:SSL", "SSL", "SSL"),
        ("A:SSL", "PLAINTEXT", "PLAINTEXT"),
        ("A:SSL", "CONTROLLER", "PLAINTEXT"),
        ("SSL:PLAINTEXT", "SSL", "PLAINTEXT"),
    ],
)
def test_what_a_listener_speaks(mapped: str, listener: str, protocol: str):
    assert protocol_of(configured(listener_security_protocol_map=mapped), listener) == protocol


def test_a_node_without_tls_needs_no_keys():
    tls = Tls(configured(listener_security_protocol_map=""))
    assert (tls.for_listener("OPEN"), tls.to_controllers(), tls.to_brokers()) == (None, None, None)
    assert tls.code_of("OPEN") == 0


@pytest.mark.parametrize("is_text", [False, True])
def test_keys_are_files_or_texts(authority: Authority, key: Path, is_text: bool):
    private, _, chain = key.read_text().partition("-----BEGIN CERTIFICATE-----")
    if is_text:
        given = {
            "ssl_keystore_key": private.replace("\n", "\\n"),
            "ssl_keystore_certificate_chain": "-----BEGIN CERTIFICATE-----" + chain,
            "ssl_truststore_certificates": authority.certificate.read_text(),
        }
    else:
        given = {
            "ssl_keystore_location": str(key),
            "ssl_truststore_location": str(authority.certificate),
        }
    config = configured(
        ssl_keystore_type="PEM", ssl_truststore_type="PEM", ssl_client_auth="required", **given
    )
    assert config.warnings == ()
    tls = Tls(config)
    server, client = tls.for_listener("SECURE"), tls.to_controllers()
    assert server is not None
    assert client is not None
    assert server.verify_mode is client.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname
    assert tls.to_brokers() is client
    assert (tls.for_listener("OPEN"), tls.code_of("SECURE")) == (None, 1)


def test_names_of_hosts_need_not_be_checked(authority: Authority):
    config = configured(
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.certificate),
        ssl_endpoint_identification_algorithm="",
    )
    client = Tls(config).to_brokers()
    assert client is not None
    assert (client.check_hostname, client.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ssl_keystore_location": "/nowhere.pem"}, "of /nowhere.pem cannot be used"),
        ({"ssl_keystore_type": "JKS"}, "ssl.keystore.type=JKS: allowed is PEM"),
        ({"ssl_keystore_location": None}, "a listener needs a key and a certificate"),
        ({"ssl_client_auth": "perhaps"}, "ssl.client.auth=perhaps: allowed is none, requested or required"),
        ({"ssl_truststore_location": "/nowhere.pem"}, "the trusted certificates of /nowhere.pem"),
        ({"ssl_keystore_key": "x"}, "ssl.keystore.certificate.chain is missing"),
        (
            {"listener_security_protocol_map": "SECURE:SASL_SSL"},
            "SECURE:SASL_SSL: allowed is PLAINTEXT or SSL",
        ),
    ],
)
def test_what_is_wrong_is_said(key: Path, changes: dict[str, str | None], reason: str):
    given: dict[str, str | None] = {
        "ssl_keystore_type": "PEM",
        "ssl_truststore_type": "PEM",
        "ssl_keystore_location": str(key),
    }
    with pytest.raises(ConfigError, match=f"broker.properties.*{reason}"):
        Tls(configured(**(given | changes))).for_listener("SECURE")
