"""The SHA-256 of each jar of the peers on the JVM: what Maven brings is used only if it is this.
Pure.

Written from what Maven fetched, and had compared with the checksums of its repository.
"""

from __future__ import annotations

from collections.abc import Mapping

SHA256: Mapping[str, str] = {
    # SmallRye Reactive Messaging 4.36.0
    "asm-9.9.1.jar": "6f3828a215c920059a5efa2fb55c233d6c54ec5cadca99ce1b1bdd10077c7ddd",
    "jackson-core-2.21.4.jar": "4b40a06396f239f8de2da57419adde6e94e5edc18a2171d471ea05eeed4e5c2d",
    "jakarta.annotation-api-2.1.1.jar": "5f65fdaf424eee2b55e1d882ba9bb376be93fb09b37b808be6e22e8851c909fe",
    "jakarta.el-api-6.0.1.jar": "7e84b5bed49de32b79cc5e85d90b6f5adb1a953ac67283adbb41c1e297f9c605",
    "jakarta.enterprise.cdi-api-4.1.0.jar": "c42c808f17925129a0800f618febe050d966e181a4c7384c8a5e7a0283d68699",
    "jakarta.enterprise.cdi-el-api-4.1.0.jar": "e414c05d2434386387914e38c7419fa77d163cbbd1e5b0fb2b480f26a63b6d77",
    "jakarta.enterprise.lang-model-4.1.0.jar": "bb56f571f60d2862b2387d5468fe8f5540f8094727283ed991f89082708095ee",
    "jakarta.inject-api-2.0.1.jar": "f7dc98062fccf14126abb751b64fab12c312566e8cbdc8483598bffcea93af7c",
    "jakarta.interceptor-api-2.2.0.jar": "d240d72b4dd38a2e431c804079810010cb97903678fa5f987fb7434878b04398",
    "jboss-classfilewriter-1.3.1.Final.jar": "e2dfa7ed7124e055b13aad0b578b8153ea953edc74ca8acfcc41f9e468980731",
    "jboss-logging-3.6.3.Final.jar": "7c12ee575508f81e22b1db9334b969d0ec54ef0fd1dcba24eeab1a44235fc366",
    "jboss-logging-annotations-3.0.4.Final.jar": "16bb023044398307eb85c18271131c57ddebf7fb053f0490fdb253e5b84ddfb2",
    "jboss-logging-processor-3.0.4.Final.jar": "27eb5f1cc9522e619cd5d29d0b7aac016019be653e07da22ead7832e76cd9354",
    "jctools-core-4.0.5.jar": "d65e5f38bcd0984e26f87187687f1f70dd52740c4d5e046f8d104e01ab5db95f",
    "jdeparser-2.0.3.Final.jar": "aec3ed49b47cb7531e2f88c603eecdc5f5b46ae976d72624162d23ee7fca3803",
    "kafka-clients-4.2.0.jar": "bcf39f152c5553c2501a491fc4a73c5b0330741e8eed96a481323b8ee89738af",
    "lz4-java-1.10.1.jar": "a58a84c4271e50df4c96ed916ccb7e48a869f8ed9cdcda1ad5d3d4c33b0214a3",
    "microprofile-config-api-3.1.1-RC1.jar": "6913dfe8e1a567293825d9960b23d3b9197f2631c631e6477ebf33617116f05b",
    "microprofile-reactive-streams-operators-api-3.0.1.jar": "2eb30081f2674e674c6587592747a81a4d92d2da1a735be5f645901de60f9f8d",  # noqa: E501, RUF100
    "mutiny-3.1.0.jar": "314bd5942c8a238d19edd000325b12cda54916a409f2c3af5c4e9e49c3a08db3",
    "mutiny-zero-1.1.0.jar": "c70704405e17721894ac37e1177e51de2bb71d8cd1a04846da3efda011ef9f99",
    "mutiny-zero-flow-adapters-1.1.0.jar": "892160e75d273fa9abce9af1f2767abf00e3c27e8bfe779375764a46716148da",
    "netty-buffer-4.1.135.Final.jar": "2a194f99fc93d07c4d442d04ac71bd2dc56d3188cd0e4270cdc2a953d1956bf9",
    "netty-codec-4.1.135.Final.jar": "7252171264dbb5bb8ed38e77f89643b31e3cabc96144ec27b6882435d718a61e",
    "netty-codec-dns-4.1.135.Final.jar": "5e996d7ac7597f368ab114fbb91d16788918c7e5bf166345c51e56db54d50fd1",
    "netty-codec-http-4.1.135.Final.jar": "4018529d3d6aecf4044b98c75d9a90c91839ddf49c7aa484c5ac81c90a15da02",
    "netty-codec-http2-4.1.135.Final.jar": "aa4e81ab5fa3b7b243eb3e814aa582ab26c073d31b0abffdbb58ee150fa49c16",
    "netty-codec-socks-4.1.135.Final.jar": "ec7a39e8d7d7e223014115a021273f011c3cb1e8fb187cbfb90a74e76d68c25c",
    "netty-common-4.1.135.Final.jar": "26775ca95820711403cf065fa2ec0134a0a04ff5417c688c0237aee68b55838d",
    "netty-handler-4.1.135.Final.jar": "245e74e04b6f4e8ef98853152412e3bf1499ce6fcf15329b798c8ce36c3537e2",
    "netty-handler-proxy-4.1.135.Final.jar": "75661010630a44468f0e85d7ed8be7779c0cb1369fe85d30799cedc52e9ed3b7",
    "netty-resolver-4.1.135.Final.jar": "77dd03865965b6c12b9e521bddec82f035caeb33156e09c158289c5094318481",
    "netty-resolver-dns-4.1.135.Final.jar": "ca25581e4cebd55797ef3b4d0953b75df32c1af77fe771b96bfaa9e701cdb7c3",
    "netty-tcnative-classes-2.0.77.Final.jar": "d492269308336001b7a7eca02703282c3d74c8c3b4fe08c5078cfefeeda7e34f",
    "netty-transport-4.1.135.Final.jar": "6bde734d1ec073142eed31b1e68cd5d68fbf241e060b37f07a164e5ecb15631c",
    "netty-transport-native-unix-common-4.1.135.Final.jar": "a7895075f112611d1640a596c2678a28aab92d5681c1c14755b109b8998f995e",  # noqa: E501, RUF100
    "opentelemetry-api-1.62.0.jar": "d58143928c049233653e6bf1282ff8a767ebdd5e6a82b3f336158c30e40b431d",
    "opentelemetry-api-incubator-1.62.0-alpha.jar": "6b8dbe21aea973896555c65e94de694ff73f788bdf47c712f8b2267a57b5d0d8",
    "opentelemetry-common-1.62.0.jar": "d6310bebde67d65c1519696728d8604005315ed08ab14071956fc0826fd71815",
    "opentelemetry-context-1.62.0.jar": "8ec86c3609222b9b6307bf40154c1f1c288d1f18ada0155409e7797adbdbe517",
    "opentelemetry-instrumentation-api-2.28.1.jar": "f4f82a26dc391cd8b9db32046aa6fe01e2d53d9f1f31fc7c7f47ee21b77f2a62",
    "opentelemetry-instrumentation-api-incubator-2.28.1-alpha.jar": "78ad66aba5c5de53634205775bd44095e17232cf2b247622d0a9e6bf20293f1c",  # noqa: E501, RUF100
    "opentelemetry-semconv-1.40.0.jar": "27eb65c14b91487cc25d35bd6f455193aac981d1ebe1b9472d5160cece573ba4",
    "opentelemetry-semconv-incubating-1.40.0-alpha.jar": "b73e725e970e3120670d3e64b8ff058fba495b0e8040b259b50dd38e030380e4",  # noqa: E501, RUF100
    "reactive-streams-1.0.3.jar": "1dee0481072d19c929b623e155e14d2f6085dc011529a0a0dbefc84cf571d865",
    "slf4j-api-1.7.36.jar": "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    "smallrye-common-annotation-2.14.0.jar": "3c7fdeac90ed7acf97b03eb63d8e3286e9f0fa66c8450613d3453645725db010",
    "smallrye-common-classloader-2.17.1.jar": "76e5fb5cb65ac0711c03575b0f6a0b42f9717b19fdc5df1f0feb159adf8cf04c",
    "smallrye-common-constraint-2.17.1.jar": "b718529ced5882249ffeefa693710fa54178d1c7e7bcd938b4c0e75812fa2461",
    "smallrye-common-expression-2.17.1.jar": "0f6949d555b2dae374f8e03be9b09a55baaa825c5445f7210cdc837f4546f4e2",
    "smallrye-common-function-2.17.1.jar": "7f5a0c6011250474514585857e24ef01678627733b6e4f1e1eb10207b87cf1ba",
    "smallrye-common-vertx-context-2.19.0.jar": "2c3d3326bab62064e7120ad6c1e4f99e267176b2efd74a44b3ab2cd5aa5c69d6",
    "smallrye-config-3.17.2.jar": "d93d4fec79674f67391c44fc995c61209ef72e816b0fc40ffd631ab883310c14",
    "smallrye-config-common-3.17.2.jar": "ebbb7b03044580440f63788cb743664749e7169b8eb382b3cfc44a4fb328bb85",
    "smallrye-config-core-3.17.2.jar": "092050099d3144bcc64b33165b3c2b7d25a519808d3c7618a6e1c1debcc0d832",
    "smallrye-mutiny-vertx-core-3.19.1.jar": "df08633e61c73cab141412a54e246f8430dfe8819e9ae917804ff9bed0f64d50",
    "smallrye-mutiny-vertx-runtime-3.19.1.jar": "9535d0957696a500168b0ad60a74d508656b533de49c87d51920b6c18797ec4b",
    "smallrye-reactive-converter-api-3.0.0.jar": "53ca23ef3e90d86d352d90c2d45bfa2122577742982dcd2e3d4a70c9d1ada692",
    "smallrye-reactive-messaging-api-4.36.0.jar": "9769168dee952f6205f204b0b3e04f8531e57ca39131eee47c42ae6de1822f73",
    "smallrye-reactive-messaging-kafka-4.36.0.jar": "f143de10c4787b334b7dd4bfbbd992f33de5579f8b3effa9d29fd6965cf12cb3",
    "smallrye-reactive-messaging-kafka-api-4.36.0.jar": "191ed639fae93d45692d8ad432610fcdeda7229368a8f2bc46121a8ebd0aef26",  # noqa: E501, RUF100
    "smallrye-reactive-messaging-otel-4.36.0.jar": "a4cf8a0dfde10a63ce416cc1f5e5f4ee817a097d3cbe65f91b2d9a816081c710",
    "smallrye-reactive-messaging-provider-4.36.0.jar": "4810e446dafff82d0f8ccf878f7027dbccb9c50af385f13465835d48e8dc05e7",  # noqa: E501, RUF100
    "snappy-java-1.1.10.7.jar": "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36",
    "vertx-codegen-4.5.16.jar": "c2e76654a1bfc711011bd7435c485658635d12c0b4eaec4136848499ccc29f54",
    "vertx-core-4.5.28.jar": "8f6979d6763137fca782fd952c67fccfcee1c742fc742186fa0c22d7a89ab4df",
    "vertx-mutiny-generator-3.19.1.jar": "5fe004363f69b445423bedcc6f24e78007826a2b865005b5cda05e5c498ab9e4",
    "weld-api-6.0.Final.jar": "aba82109aafec7d6c3846049536a89bf77afbbe61bf96eb039321ca3f92fa7be",
    "weld-core-impl-6.0.4.Final.jar": "e322097d319bda685cc3adacf122d89348561e6212a250603b893bc6e23f5711",
    "weld-environment-common-6.0.4.Final.jar": "783cb7a2c1b61b9f2ba890c8add44300ab8151cd0ca3faeab5ba8a6589c5f889",
    "weld-lite-extension-translator-6.0.4.Final.jar": "e3b863719b82192178af76b2f22bafd8522eaca5be5994b4d8b749831b35393c",  # noqa: E501, RUF100
    "weld-se-core-6.0.4.Final.jar": "66f3c737f1ef52250eeaa0640e7fd1aecd3e904cd15ac1bb3ef26f25673847ad",
    "weld-spi-6.0.Final.jar": "208638fa4b47694374b484a525319b5dbbe53a4bc399acabc8556774e47ad923",
    "zstd-jni-1.5.6-10.jar": "b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df",
    # parallel-consumer 0.5.3.3
    "HdrHistogram-2.2.1.jar": "df6afd38afcf79fc5c8e67087ea953c1b83b040176d5f573db4ce91a260fc07c",
    "LatencyUtils-2.0.3.jar": "a32a9ffa06b2f4e01c5360f8f9df7bc5d9454a5d373cd8f361347fa5a57165ec",
    "kafka-clients-3.9.1.jar": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "lz4-java-1.8.0.jar": "d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef",
    "micrometer-commons-1.13.0.jar": "039aef255b5092561fdf649367fd0ff9af8da00aadb25f0c60cf30ebad8dceb8",
    "micrometer-core-1.13.0.jar": "1ced414878f151d08617b47732fa67a5d06b47b63903e2722f40e2294e883643",
    "micrometer-observation-1.13.0.jar": "33e7c9de55ef34ae502a2ad6c4c9786563b6d44eca2cbd2b832911594b378858",
    "parallel-consumer-core-0.5.3.3.jar": "91e040fcdf418344ef6122eac4d1a40761c986817ca1b2db6c3eb41d6f19e69a",
    "pl.tlinkowski.unij.api-0.1.3.jar": "7d4b5a04e64812af5530bb3613123b5c0758cb1053526881467ebc3336bf7752",
    "pl.tlinkowski.unij.bundle.jdk8-0.1.3.jar": "075315f3b52fcd19eba0915071334fba9a1751d78dd0ab8b378db72a39fcd65a",
    "pl.tlinkowski.unij.service.api-0.1.3.jar": "9fd072cb83d6439faebd84018df68da0cd3ab218b99c757d2c6cc16df17a3061",
    "pl.tlinkowski.unij.service.collect.jdk8-0.1.3.jar": "9bb06158b7f61f56191e653e74331528f050baca83be1d5bbb68a5c54350de8f",  # noqa: E501, RUF100
    "pl.tlinkowski.unij.service.misc.jdk8-0.1.3.jar": "e52a9c9854e52bb2406873e5d761173135d3e448ba9289fdf8d7e93180138fd0",  # noqa: E501, RUF100
    "slf4j-api-2.0.13.jar": "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9",
    "snappy-java-1.1.10.5.jar": "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    "zstd-jni-1.5.5-4.jar": "e234c9ccbe9e36e19cc36c633d15f4a461f1bdc985d66662a2abbaa89859e522",
}
